package e2e

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestMappedTraps counts what is trapped of a guest's whole day with everything mapped:
// boot, probe, copies that are checked, poweroff. Stock kernels with nothing mapped make
// 2.3 million; their processors have ERMS, with which they fill memory by bytes.
func TestMappedTraps(t *testing.T) {
	for _, version := range []string{"6.12", "7.2"} {
		t.Run(version, func(t *testing.T) {
			var traps *serve.Counted
			var spent *timed
			b := start(t, stand.Config{
				Card: soft.Config{Map: homes.MapAll},
				Device: func(c *soft.Card) vfiouser.Device {
					spent = &timed{Observed: serve.NewPassThrough(c)}
					traps = serve.Count(spent, slog.New(slog.DiscardHandler))
					return traps
				},
				Machine: lab.Config{Kernel: version, CPU: "max"},
			})
			aside := day(b, traps, b.Card.Registers(), version, &b.Card.Stats().Windows)
			t.Logf("%v in traps", time.Duration(spent.ns.Load()))
			// In a day the driver invalidates a few hundred times, and each is done at once.
			require.Less(t, total(traps)-aside, dayTraps+ofAlarms(alarms(b.Card.Registers()), dayAlarms))
		})
	}
}

// timed is a device that knows how long it was in traps.
type timed struct {
	serve.Observed
	ns atomic.Int64
}

func (d *timed) ReadRegion(index int, off uint64, p []byte) error {
	defer d.since(time.Now())
	return d.Observed.ReadRegion(index, off, p)
}

func (d *timed) WriteRegion(index int, off uint64, p []byte) error {
	defer d.since(time.Now())
	return d.Observed.WriteRegion(index, off, p)
}

func (d *timed) since(begin time.Time) { d.ns.Add(int64(time.Since(begin))) }

// TestMappedTrapsVirtual is the same for a virtual GPU. How often its driver asks
// again whether an invalidate is done, or a runlist taken, depends on the card: those
// reads are not counted, but it does not ask for ever.
func TestMappedTrapsVirtual(t *testing.T) {
	for _, version := range []string{"6.12", "7.2"} {
		t.Run(version, func(t *testing.T) {
			machines <- struct{}{}
			t.Cleanup(func() { <-machines })
			s, err := stand.NewShared(soft.Config{VRAM: 1 << 30}, 0, 0)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			require.NoError(t, s.AddGPU(aggregator.GuestConfig{Name: "gpu", VRAM: 512 << 20, Map: homes.MapAll}))
			gpu := s.GPUs[0]
			regs := gpu.GPU.Registers()
			asked := traceRequests(t, regs)
			vm, err := lab.Start(t.Context(), lab.Config{Kernel: version, CPU: "max", Sockets: []string{gpu.Socket}})
			require.NoError(t, err)
			t.Attr("kernel", vm.Kernel()+" under "+vm.Accel().Name)
			t.Cleanup(func() { require.NoError(t, vm.Close()) })
			b := &bed{&stand.Stand{Card: s.Card, VM: vm}, t, t.Context()}
			aside := day(b, gpu.Watched, regs, version, &gpu.Guest.Stats().Mapped)
			again, of := askedAgain(regs)
			longest, requests := longestAsked(t, regs, asked)
			t.Logf("of %d requests, asked %d times again whether they are done, %d times for one", of, again, longest)
			require.Equal(t, of, requests, "in the trace")
			require.NotZero(t, requests)
			require.Less(t, longest, uint64(forEver))
			require.Less(t, total(gpu.Watched)-aside-again*readsToAsk, dayTraps+ofAlarms(alarms(regs), dayAlarms))
		})
	}
}

const (
	// readsToAsk is what it takes to ask: the register, and the clock, whose upper half is
	// read on both sides of the lower one, for whoever waits gives up after two seconds.
	readsToAsk = 4
	// forEver is how often one request is not asked for. Each time takes a fifth of a
	// millisecond, so this is a second, half of the time after which the driver gives up. On an
	// idle machine it is less than once in the mean; how often it is on a busy one says when
	// the guest's goroutine had its turn.
	forEver = 5000
)

// requests are by what the driver begins one, and where it asks whether it is done.
var requests = map[string]string{
	"NV_PFB_PRI_MMU_INVALIDATE": "NV_PFB_PRI_MMU_CTRL", "NV_PFIFO_RUNLIST": "NV_PFIFO_ENG_RUNLIST",
}

// traceRequests has the registers of requests traced from now on.
func traceRequests(t *testing.T, regs *mmio.Space) *mmio.Trace {
	var ranges []mmio.Range
	for _, row := range regs.Rows() {
		if _, begins := requests[row.Reg.Name]; begins || slices.Contains(slices.Collect(maps.Values(requests)), row.Reg.Name) {
			ranges = append(ranges, mmio.Range{First: row.Reg.Offset, Last: row.Reg.Offset + 3})
		}
	}
	require.Len(t, ranges, 2*len(requests))
	trace, err := mmio.NewTrace(1<<20, ranges...)
	require.NoError(t, err)
	regs.SetTrace(trace)
	return trace
}

// longestAsked is how often the driver asked for the request that it asked for most, beyond
// the two times that it always does, and how many requests there were.
func longestAsked(t *testing.T, regs *mmio.Space, trace *mmio.Trace) (longest, of uint64) {
	records, dropped := trace.Records()
	require.Zero(t, dropped)
	since := map[string]uint64{} // the last request, by where it is asked for
	for _, r := range records {
		name := regs.NameOf(r.Offset)
		switch asked, begins := requests[name]; {
		case begins && r.Write:
			of++
			since[asked] = 0
		case !begins && !r.Write:
			since[name]++
			longest = max(longest, since[name])
		}
	}
	return max(longest, 2) - 2, of
}

// askedAgain is how often the driver asked whether what it had begun was done, beyond the two
// times that it always does (is there room for it, and is it done), and of how many requests.
func askedAgain(regs *mmio.Space) (again, of uint64) {
	registers := map[string]accesses{}
	for _, c := range regs.Counts() {
		registers[c.Name] = accesses{c.Reads, c.Writes}
	}
	for begin, asked := range requests {
		n := registers[begin].writes
		of += n
		again += max(registers[asked].reads, 2*n) - 2*n
	}
	return again, of
}

// TestMappedMemory has a guest's processor load and store words of VRAM through BAR1,
// and as many of its own memory: the first are no more traps than the second. How long
// both take is logged.
func TestMappedMemory(t *testing.T) {
	var traps *serve.Counted
	b := start(t, stand.Config{
		Card: soft.Config{Map: homes.MapAll},
		Device: func(c *soft.Card) vfiouser.Device {
			traps = serve.Count(serve.NewPassThrough(c), slog.New(slog.DiscardHandler))
			return traps
		},
		Machine: lab.Config{Kernel: "6.12", CPU: "max"},
	})
	b.call(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
	ns := map[string][]float64{}
	const turns = 5
	for range turns {
		var res proto.BenchResult
		b.call(proto.CmdBench, proto.BenchArgs{Engines: []string{"m2mf"}, Sizes: []uint32{4096}, Rounds: 2, Registers: 16384}, &res)
		for _, a := range res.Access {
			ns[a.What] = append(ns[a.What], a.NS)
		}
	}
	for _, what := range []string{"bar1-write vram", "bar1-read vram", "ram-write", "ram-read"} {
		require.Len(t, ns[what], turns, what)
		t.Logf("%s: %.2f ns a word", what, slices.Min(ns[what]))
	}
	for _, r := range traps.Traps() {
		if r.Region == "BAR1" {
			require.Zero(t, r.Reads)
			require.Less(t, r.Writes, uint64(1000), "doorbells alone")
		}
	}
}

// Poweroff suspends the card, in kernels that do. With nothing mapped 7.2 makes half a million
// traps of it, which take 30 s; with everything mapped some 200, of which its alarms for the
// temperature are 50 each. How long it takes is the machine's business, and is logged.
const offTraps = 2000

// A day has some 11,000 traps, and three to seven alarms; its poweroff has one or none. On a
// busy machine it takes longer, and what more alarms than these make is allowed for.
const (
	dayTraps  = uint64(13000)
	dayAlarms = 20
	offAlarms = 10
)

// day is what a guest does; no window that is mapped may be trapped in it, and its driver gives
// up waiting for nothing. Traps aside are those of submissions whose traps are counted for themselves.
func day(b *bed, traps *serve.Counted, regs *mmio.Space, kernel string, stats *homes.Stats) (aside uint64) {
	mark, morning := b.mark(), time.Now()
	b.call(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
	aside = b.requireSilentWaits(traps, regs, rings[kernel])
	b.call(proto.CmdM2MF, proto.CopyArgs{Quick: true}, nil)
	for _, line := range b.logAfter(mark) {
		require.False(b.t, strings.Contains(line.Text, "nouveau") && strings.HasSuffix(line.Text, "timeout"), line.Text)
	}
	n, before, begin := total(traps), alarms(regs), time.Now()
	_, err := b.Poweroff(b.ctx)
	require.NoError(b.t, err)
	n = total(traps) - n
	off := alarms(regs) - before
	b.t.Logf("poweroff: %d traps, %d alarms of %d that day, %v", n, off, alarms(regs), time.Since(begin))
	require.LessOrEqual(b.t, off, mayAlarm(time.Since(begin)), "of poweroff")
	require.LessOrEqual(b.t, alarms(regs), mayAlarm(time.Since(morning)))
	require.Less(b.t, n, offTraps+ofAlarms(off, offAlarms), "of poweroff")
	for _, r := range traps.Traps() {
		b.t.Logf("%s: %d reads, %d writes", r.Region, r.Reads, r.Writes)
		switch r.Region {
		case "BAR1":
			require.Zero(b.t, r.Reads)
			require.Less(b.t, r.Writes, uint64(2000), "doorbells alone")
		case "BAR3":
			require.Zero(b.t, r.Reads+r.Writes)
		}
	}
	for _, c := range stats.Counts() {
		b.t.Logf("%s: %d", c.Name, c.N)
	}
	require.Zero(b.t, stats.Aliases.Load()+stats.RunsRefused.Load()+stats.MovesRefused.Load()+stats.PollArea.Load()+stats.Lost.Load())
	return aside
}

func total(traps *serve.Counted) (n uint64) {
	for _, r := range traps.Traps() {
		n += r.Reads + r.Writes
	}
	return n
}
