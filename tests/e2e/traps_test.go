package e2e

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/mmio"
)

// Bounds on traps with all windows mapped. Boot, probe and verified copies make some
// 11,000. With nothing mapped, a processor with ERMS makes 2.3 million of them. A
// power-off makes some 200, and half a million with nothing mapped.
const (
	workTraps     = uint64(13000)
	poweroffTraps = uint64(2000)
)

// nouveau reads the temperature about twice a second, by an alarm of PTIMER. A slow
// machine sees more alarms in the same work, so the bounds allow for alarms beyond
// these.
const (
	workAlarms     = 20
	poweroffAlarms = 10
)

type accesses struct{ reads, writes uint64 }

// alarmAccesses is what one alarm makes of each register at most.
var alarmAccesses = map[string]accesses{
	// The interrupt: finding its unit, and masking it until handled.
	"NV_PMC_INTR":    {2, 0},
	"NV_PMC_INTR_EN": {1, 4},
	"NV_PMC_BOOT_0":  {1, 0}, // a read that makes the write before it arrive
	"PPCI":           {0, 1}, // permits the next message
	// The alarm is acknowledged and set again.
	"NV_PTIMER_INTR_0":    {1, 1},
	"NV_PTIMER_INTR_EN_0": {0, 3},
	"NV_PTIMER_ALARM_0":   {0, 1},
	"NV_PTIMER_TIME_0":    {8, 0},
	"NV_PTIMER_TIME_1":    {16, 0},
	// The sensor and its calibration fuses, for each of six thresholds.
	"NV_PTHERM_I2C_SLAVE_TEMP_HIGH": {6, 0},
	"NV_PFUSE_FUSES_TEMP_CAL_OK":    {6, 0},
	"NV_PFUSE_UNK000":               {6, 12},
	"NV_PUNITS_FUSE_CONTROL":        {6, 12},
}

// registers counts the accesses to each register so far.
func registers(regs *mmio.Space) map[string]accesses {
	out := map[string]accesses{}
	for _, c := range regs.Counts() {
		out[c.Name] = accesses{c.Reads, c.Writes}
	}
	return out
}

// alarms counts the temperature alarms so far.
func (b *fixture) alarms() uint64 { return registers(b.gpu.Registers())["NV_PTIMER_ALARM_0"].writes }

// extraAlarms is what n alarms make beyond the usual number of them.
func extraAlarms(n, usual uint64) (traps uint64) {
	for _, a := range alarmAccesses {
		traps += (max(n, usual) - usual) * (a.reads + a.writes)
	}
	return traps
}

// totalTraps counts all of the guest's accesses that reached the server.
func (b *fixture) totalTraps() (n uint64) {
	for _, a := range b.regions() {
		n += a.reads + a.writes
	}
	return n
}

// regions counts the traps of each region.
func (b *fixture) regions() map[string]accesses {
	out := map[string]accesses{}
	for _, r := range b.gpu.Traps() {
		out[r.Region] = accesses{r.Reads, r.Writes}
	}
	return out
}

func minus(now, before map[string]accesses) map[string]accesses {
	out := map[string]accesses{}
	for name, n := range now {
		if was := before[name]; n != was {
			out[name] = accesses{n.reads - was.reads, n.writes - was.writes}
		}
	}
	return out
}

// requireFewTraps bounds the traps from boot to the end of verified copies. No mapped
// window may be trapped in it.
func (b *fixture) requireFewTraps(k kernel, isVirtual bool) {
	begin := b.totalTraps()
	b.requireSilentWaits(k.doorbells)
	aside := b.totalTraps() - begin
	b.call(proto.CmdM2MF, nil, nil)
	if isVirtual {
		aside += b.askedAgain()
	}
	n, alarms := b.totalTraps(), b.alarms()
	b.t.Logf("%d traps, %d of them set aside, %d alarms: %v", n, aside, alarms, b.regions())
	require.Less(b.t, n-aside, workTraps+extraAlarms(alarms, workAlarms))
	b.requireMapped()
}

// requireMapped fails if the guest was trapped in a mapped window, or if a window was
// not what the guest sees on real hardware.
func (b *fixture) requireMapped() {
	b.t.Helper()
	r := b.regions()
	require.Zero(b.t, r["BAR1"].reads)
	require.Less(b.t, r["BAR1"].writes, uint64(2000), "doorbells only")
	require.Zero(b.t, r["BAR3"])
	w := b.gpu.Shown()
	require.Zero(b.t, w.AliasesRefused.Load()+w.RunsRefused.Load()+w.MovesRefused.Load()+
		w.PollArea.Load()+w.TooFast.Load())
}

// askedAgain counts the traps by which a driver on a virtual GPU asks again whether
// an invalidate or a runlist is done. The card decides how many there are. The driver
// always asks twice: whether there is room for the request, and whether it is done.
// Each further time takes the register, and the clock: its lower half, and its upper
// half before and after.
func (b *fixture) askedAgain() (traps uint64) {
	counts := registers(b.gpu.Registers())
	for request, status := range map[string]string{
		"NV_PFB_PRI_MMU_INVALIDATE": "NV_PFB_PRI_MMU_CTRL", "NV_PFIFO_RUNLIST": "NV_PFIFO_ENG_RUNLIST",
	} {
		usual := 2 * counts[request].writes
		require.NotZero(b.t, usual, request)
		traps += 4 * (max(counts[status].reads, usual) - usual)
	}
	return traps
}

// requireSilentWaits submits work and waits for it by reading memory, again and again.
// That may trap nothing but the doorbells: so many of them for each submission.
func (b *fixture) requireSilentWaits(doorbells uint64) {
	b.t.Helper()
	b.call(proto.CmdDoorbellOpen, nil, nil)
	launch := func(n int) { b.call(proto.CmdDoorbell, proto.DoorbellArgs{Count: n}, nil) }
	launch(20) // the first ones set things up
	regs, regions, at := registers(b.gpu.Registers()), b.regions(), time.Now()
	const done = 300
	launch(done)
	took := time.Since(at)
	regs, regions = minus(registers(b.gpu.Registers()), regs), minus(b.regions(), regions)

	alarms := regs["NV_PTIMER_ALARM_0"].writes + 1 // one may be half done at either end
	require.LessOrEqual(b.t, alarms, 4+uint64(4*took/time.Second), "more alarms than time explains")
	for name, n := range regs {
		most, ok := alarmAccesses[name]
		require.True(b.t, ok, "%s: %+v in %d waits", name, n, done)
		require.LessOrEqual(b.t, n.reads, alarms*most.reads, name)
		require.LessOrEqual(b.t, n.writes, alarms*most.writes, name)
	}
	delete(regions, "BAR0") // the registers
	want := map[string]accesses{}
	if doorbells > 0 {
		want["BAR1"] = accesses{0, doorbells * done}
	}
	require.Equal(b.t, want, regions)
	b.call(proto.CmdDoorbellClose, nil, nil)
}

// poweroff shuts the guest down in good order. Kernels that suspend the card while
// they power off must do that with few traps.
func (b *fixture) poweroff() {
	traps, alarms := b.totalTraps(), b.alarms()
	require.NoError(b.t, b.VM.Poweroff(b.ctx))
	b.requireNoHoles()
	traps, alarms = b.totalTraps()-traps, b.alarms()-alarms
	b.t.Logf("%d traps, %d alarms", traps, alarms)
	require.Less(b.t, traps, poweroffTraps+extraAlarms(alarms, poweroffAlarms))
}
