package bench

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// step is what a machine does in its life, for which scenario.
type step struct {
	scenario string
	do       func(l *life)
}

// steps in their order.
var steps = []step{
	{probe.name, (*life).probe},
	{contexts.name, (*life).contexts},
	{doorbell.name, (*life).fences},
	{doorbell.name, (*life).doorbells},
	{submit.name, (*life).submit},
	{tables.name, (*life).tables},
	{copies.name, (*life).copies},
	{traps.name, (*life).accesses},
	{bandwidth, (*life).bandwidth},
	{openCL, (*life).openCL},
	{neighbour.name, (*life).idle},
	{suspend.name, (*life).poweroff},
}

// probe loads nouveau.
func (l *life) probe() {
	l.measure("", func(t *take) {
		var loaded proto.ModprobeResult
		t.phase("modprobe", func() { l.ask(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &loaded) })
		n := len(loaded.Loaded)
		if n == 0 || loaded.Loaded[n-1].Name != "nouveau" {
			must(fmt.Errorf("modprobe loaded %+v, without nouveau", loaded.Loaded))
		}
		t.metric("guest-clock-ns", float64(loaded.Loaded[n-1].InitNS))
		var dri proto.DRIResult
		if l.ask(proto.CmdDRI, nil, &dri); len(dri.Nodes) != 2 {
			must(fmt.Errorf("%d nodes in /dev/dri after the probe, want 2", len(dri.Nodes)))
		}
	})
}

// contexts creates and destroys clients of the driver, each with an address space and a channel.
func (l *life) contexts() {
	for _, n := range []int{1, pick(l.quick, 4, 8)} {
		call(l, fmt.Sprint("contexts=", n), proto.CmdContexts, proto.ContextsArgs{Count: n}, func(t *take, r *proto.ContextsResult) {
			t.metric("create-ns", float64(r.CreateNS))
			t.metric("destroy-ns", float64(r.DestroyNS))
		})
	}
}

func fencesRight(r *proto.FencesResult) {
	if r.Wrong > 0 {
		must(errors.New("fences came out wrong"))
	}
}

// fences measures submissions, one at a time, by the guest's clock.
func (l *life) fences() {
	n := pick(l.quick, 100, 300)
	call(l, "fences", proto.CmdFences, proto.FencesArgs{Count: n, SubmitOnly: true}, func(t *take, r *proto.FencesResult) {
		t.perTimed(n, float64(r.MedianNS))
		t.metric("fence-p50-ns", float64(r.MedianNS))
		t.metric("fence-p99-ns", float64(r.P99NS))
		fencesRight(r)
	})
}

// submit measures small submissions, many under way, by the guest's clock.
func (l *life) submit() {
	const batch = 64
	n := pick(l.quick, 10, 20)
	call(l, fmt.Sprint("submissions=", n*batch), proto.CmdFences, proto.FencesArgs{Count: n, Batch: batch, SubmitOnly: true}, func(t *take, r *proto.FencesResult) {
		t.perTimed(1, float64(r.MedianNS)*float64(n))
		if r.MedianNS > 0 {
			t.metric("submissions/s", batch/(float64(r.MedianNS)/1e9))
		}
		fencesRight(r)
	})
}

// doorbells measures launches on one channel by the guest's clock.
func (l *life) doorbells() {
	l.ask(proto.CmdDoorbellOpen, nil, nil)
	call(l, "doorbells", proto.CmdDoorbell, proto.DoorbellArgs{Count: pick(l.quick, 100, 400)}, func(t *take, r *proto.DoorbellResult) {
		if r.Count < 1 {
			must(errors.New("the guest rang no doorbell"))
		}
		t.per(r.Count)
		t.metric("launch-p50-ns", float64(r.P50NS))
		t.metric("launch-p99-ns", float64(r.P99NS))
		t.metric("work-p50-ns", float64(r.WorkP50NS))
		t.metric("work-p99-ns", float64(r.WorkP99NS))
	})
	l.ask(proto.CmdDoorbellClose, nil, nil)
}

// tables has the driver map and unmap memory: many entries at a time, or one.
func (l *life) tables() {
	for _, c := range []struct {
		name string
		args proto.TablesArgs
	}{
		{"dense", proto.TablesArgs{Buffers: pick(l.quick, 2, 8), Bytes: 8 << 20}},
		{"sparse", proto.TablesArgs{Buffers: pick(l.quick, 100, 300), Bytes: 4 << 10}},
	} {
		call(l, fmt.Sprintf("%s/buffers=%d", c.name, c.args.Buffers), proto.CmdTables, c.args, func(t *take, r *proto.TablesResult) {
			t.metric("map-ns", float64(r.MapNS))
			t.metric("use-ns", float64(r.UseNS))
			t.metric("unmap-ns", float64(r.UnmapNS))
		})
	}
}

// copies measures each engine at two sizes. The guest verifies what it copies.
func (l *life) copies() {
	for _, size := range []uint32{4 << 10, 1 << 20} {
		for _, engine := range []string{"m2mf", "ce0", "ce1"} {
			name := fmt.Sprintf("size=%dKiB/engine=%s", size>>10, strings.ToUpper(engine))
			call(l, name, proto.CmdBench, proto.BenchArgs{Engine: engine, Bytes: size, Rounds: 20, Registers: 1}, func(t *take, r *proto.BenchResult) {
				for _, c := range r.Copies {
					t.metric(unit(c.From+"-to-"+c.To)+"-B/s", c.MiBps*(1<<20))
				}
			})
		}
	}
}

var notUnit = regexp.MustCompile(`[^a-z0-9]`)

// unit makes a text a part of a unit.
func unit(text string) string { return notUnit.ReplaceAllString(strings.ToLower(text), "-") }

func noneSkipped(list []string) {
	if len(list) > 0 {
		must(fmt.Errorf("the guest could not measure: %s", strings.Join(list, "; ")))
	}
}

// accesses measures loads and stores of a program in the guest.
func (l *life) accesses() {
	args := proto.BenchArgs{Engine: "m2mf", Bytes: 4096, Rounds: 1, Registers: 500}
	call(l, "accesses", proto.CmdBench, args, func(t *take, r *proto.BenchResult) {
		for _, a := range r.Access {
			t.metric(unit(a.What)+"-ns", a.NS)
		}
		noneSkipped(r.Skipped)
	})
}

// bandwidth measures how fast the guest's processor reaches VRAM. Its time is that of one read of
// all bytes.
func (l *life) bandwidth() {
	args := proto.BandwidthArgs{Bytes: 16 << 10, BARMS: pick(l.quick, 100, 200)}
	call(l, "bytes=16KiB", proto.CmdBandwidth, args, func(t *take, r *proto.BandwidthResult) {
		for i, w := range r.Windows {
			if i == 0 {
				t.perTimed(1, float64(args.Bytes)/w.ReadBps*1e9)
				t.metric("ram-read-B/s", w.RAMReadBps)
				t.metric("ram-write-B/s", w.RAMWriteBps)
			}
			t.metric(unit(w.Window)+"-read-B/s", w.ReadBps)
			t.metric(unit(w.Window)+"-write-B/s", w.WriteBps)
		}
		noneSkipped(r.Skipped)
	})
}

// onDevice is how a program says how long its device worked, in milliseconds.
var onDevice = regexp.MustCompile(`([0-9.]+) ms on the device`)

// openCL runs the programs. Each compiles its kernels first, which is not part of its time.
func (l *life) openCL() {
	for _, p := range programs[:pick(l.quick, 2, len(programs))] {
		call(l, "program="+p, proto.CmdRun, proto.RunArgs{Argv: []string{p}}, func(t *take, r *proto.RunResult) {
			m := onDevice.FindStringSubmatch(r.Output)
			if m == nil {
				must(fmt.Errorf("%s does not say how long its device worked: %q", p, r.Output))
			}
			t.perTimed(1, get(strconv.ParseFloat(m[1], 64))*1e6)
			t.metric("program-ns", float64(r.NS))
		})
	}
}

// idle measures the processor time of this process while the guest's driver is idle.
func (l *life) idle() {
	d := time.Duration(pick(l.quick, 300, 700)) * time.Millisecond
	l.measure("idle=1", func(t *take) {
		t.sleep(d)
		t.idle(d)
	})
}

// poweroff shuts the guest down. Its driver saves what VRAM would lose.
func (l *life) poweroff() {
	l.measure("poweroff", func(t *take) {
		t.phase("poweroff", func() { t.metric("guest-clock-ns", float64(get(l.vm.TimedPoweroff(l.ctx)))) })
	})
}
