package e2e

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// rings is how often a kernel's driver rings for one submission: 6.12 does it once for the
// work and once for the fence behind it, 7.2 has them in one piece.
var rings = map[string]uint64{"6.12": 2, "7.2": 1}

type accesses struct{ reads, writes uint64 }

// temperature is what nouveau does of its own accord, by an alarm of PTIMER about twice a
// second, to learn how warm the card is: no part of any work. It is what one alarm makes of
// each register at most.
var temperature = map[string]accesses{
	// The alarm is an interrupt: which unit it is of, and quiet meanwhile.
	"NV_PMC_INTR":    {2, 0},
	"NV_PMC_INTR_EN": {1, 4},
	"NV_PMC_BOOT_0":  {1, 0}, // a read that has the write before it arrive
	"PPCI":           {0, 1}, // the next message may come
	// It is PTIMER's: taken back, and set anew by the time that it is.
	"NV_PTIMER_INTR_0":    {1, 1},
	"NV_PTIMER_INTR_EN_0": {0, 3},
	"NV_PTIMER_ALARM_0":   {0, 1},
	"NV_PTIMER_TIME_0":    {8, 0},
	"NV_PTIMER_TIME_1":    {16, 0},
	// The sensor, and the fuses that say how it is to be read, for each of six thresholds.
	"NV_PTHERM_I2C_SLAVE_TEMP_HIGH": {6, 0},
	"NV_PFUSE_FUSES_TEMP_CAL_OK":    {6, 0},
	"NV_PFUSE_UNK000":               {6, 12},
	"NV_PUNITS_FUSE_CONTROL":        {6, 12},
}

// alarms is how many there were so far.
func alarms(regs *mmio.Space) uint64 {
	for _, c := range regs.Counts() {
		if c.Name == "NV_PTIMER_ALARM_0" {
			return c.Writes
		}
	}
	return 0
}

// mayAlarm is how many there may be in so long: a driver looks twice a second, or so.
func mayAlarm(took time.Duration) uint64 { return 4 + uint64(4*took/time.Second) }

// ofAlarms is what alarms beyond the usual ones make at most.
func ofAlarms(n, usual uint64) (traps uint64) {
	for _, a := range temperature {
		traps += (max(n, usual) - usual) * (a.reads + a.writes)
	}
	return traps
}

// trapsOf has every trap there was: by register, and by region.
func trapsOf(traps *serve.Counted, regs *mmio.Space) (registers, regions map[string]accesses) {
	registers, regions = map[string]accesses{}, map[string]accesses{}
	for _, c := range regs.Counts() {
		registers[c.Name] = accesses{c.Reads, c.Writes}
	}
	for _, r := range traps.Traps() {
		regions[r.Region] = accesses{r.Reads, r.Writes}
	}
	return registers, regions
}

func since(now, then map[string]accesses) map[string]accesses {
	out := map[string]accesses{}
	for name, n := range now {
		if was := then[name]; n != was {
			out[name] = accesses{n.reads - was.reads, n.writes - was.writes}
		}
	}
	return out
}

// requireSilentWaits has the guest submit, and wait for what it submitted by looking at
// memory, again and again: that makes so many traps of the doorbell for each, and none of
// anything else. It returns how many traps there were in all, with those that making the
// channel and ending it took.
func (b *bed) requireSilentWaits(traps *serve.Counted, regs *mmio.Space, ringsEach uint64) uint64 {
	b.t.Helper()
	begin := total(traps)
	b.call(proto.CmdBellsOpen, nil, nil)
	launch := func(n int) (done uint64) {
		var r proto.BellsResult
		b.call(proto.CmdBells, proto.BellsArgs{How: proto.BellLaunch, Count: n}, &r)
		return uint64(r.Count)
	}
	launch(20) // what the first ones pay for
	registers, regions := trapsOf(traps, regs)
	at := time.Now()
	done := launch(300)
	took := time.Since(at)
	registersThen, regionsThen := trapsOf(traps, regs)
	registers, regions = since(registersThen, registers), since(regionsThen, regions)
	require.GreaterOrEqual(b.t, done, uint64(300))

	alarms := registers["NV_PTIMER_ALARM_0"].writes + 1 // one may be under way at either end
	b.t.Logf("%d submissions and waits in %v: %d alarms, traps by region %v, by register %v", done, took, alarms-1, regions, registers)
	require.LessOrEqual(b.t, alarms, mayAlarm(took), "an alarm for each of them would be one trap too many")
	for name, n := range registers {
		most, ok := temperature[name]
		require.True(b.t, ok, "%s: %+v in %d waits", name, n, done)
		require.LessOrEqual(b.t, n.reads, alarms*most.reads, name)
		require.LessOrEqual(b.t, n.writes, alarms*most.writes, name)
	}
	delete(regions, "BAR0") // those of the registers
	want := map[string]accesses{}
	if ringsEach > 0 {
		want["BAR1"] = accesses{0, ringsEach * done}
	}
	require.Equal(b.t, want, regions)
	b.call(proto.CmdBellsClose, nil, nil)
	return total(traps) - begin
}
