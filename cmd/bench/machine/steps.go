package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// probe loads nouveau.
func (l *life) probe(ctx context.Context) error {
	return l.take("", map[string]string{}, func(t *scene.Take) error {
		var loaded proto.ModprobeResult
		err := t.Phase("modprobe", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &loaded)
		})
		if err != nil {
			return err
		}
		n := len(loaded.Loaded)
		if n == 0 || loaded.Loaded[n-1].Name != "nouveau" {
			return fmt.Errorf("modprobe loaded %+v, without nouveau", loaded.Loaded)
		}
		t.Figure("guest's clock", report.Nanoseconds, float64(loaded.Loaded[n-1].InitNS))
		var dri proto.DRIResult
		if err := l.vm.Agent().Call(ctx, proto.CmdDRI, nil, &dri); err != nil {
			return err
		}
		if len(dri.Nodes) != 2 {
			return fmt.Errorf("%d nodes in /dev/dri after the probe, want 2", len(dri.Nodes))
		}
		return nil
	})
}

// pick returns the small or the full parameter of the run.
func (l *life) pick(quick, full int) int {
	if l.run.Quick {
		return quick
	}
	return full
}

// contexts makes and ends clients of the driver, each with an address space and a
// channel.
func (l *life) contexts(ctx context.Context) error {
	for _, n := range []int{1, l.pick(4, 8)} {
		err := l.take(fmt.Sprintf("%d contexts", n), map[string]string{"contexts": fmt.Sprint(n)}, func(t *scene.Take) error {
			var r proto.ContextsResult
			err := t.Phase("contexts", func() error {
				return l.vm.Agent().Call(ctx, proto.CmdContexts, proto.ContextsArgs{Count: n}, &r)
			})
			t.Figure("create", report.Nanoseconds, float64(r.CreateNS))
			t.Figure("destroy", report.Nanoseconds, float64(r.DestroyNS))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fences measures submissions, one at a time, by the guest's clock.
func (l *life) fences(ctx context.Context) error {
	n := l.pick(100, 300)
	return l.take("fences", map[string]string{"submissions": fmt.Sprint(n)}, func(t *scene.Take) error {
		var r proto.FencesResult
		err := t.Phase("fences", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdFences, proto.FencesArgs{Count: n}, &r)
		})
		if err == nil && (r.Wrong > 0 || r.CrossWrong > 0) {
			err = errors.New("fences came out wrong")
		}
		t.Figure("p50", report.Nanoseconds, float64(r.MedianNS))
		t.Figure("p99", report.Nanoseconds, float64(r.P99NS))
		return err
	})
}

// storm measures small submissions, many under way.
func (l *life) storm(ctx context.Context) error {
	const batch = 64
	n := l.pick(10, 20)
	p := map[string]string{"submissions": fmt.Sprint(n * batch), "batch": fmt.Sprint(batch)}
	return l.take(fmt.Sprintf("%d submissions", n*batch), p, func(t *scene.Take) error {
		var r proto.FencesResult
		err := t.Phase("storm", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdFences, proto.FencesArgs{Count: n, Batch: batch}, &r)
		})
		if err == nil && (r.Wrong > 0 || r.CrossWrong > 0) {
			err = errors.New("fences came out wrong")
		}
		if r.MedianNS > 0 {
			t.Figure("submissions", report.EachSecond, batch/(float64(r.MedianNS)/1e9))
		}
		return err
	})
}

// tables has the driver map and unmap memory: many entries at a time, or one.
func (l *life) tables(ctx context.Context) error {
	for _, c := range []struct {
		name    string
		buffers int
		bytes   uint64
	}{
		{"dense", l.pick(2, 8), 8 << 20},
		{"sparse", l.pick(100, 300), 4 << 10},
	} {
		p := map[string]string{"buffers": fmt.Sprint(c.buffers), "bytes": fmt.Sprint(c.bytes)}
		err := l.take(fmt.Sprintf("%s, %d buffers of %d KiB", c.name, c.buffers, c.bytes>>10), p, func(t *scene.Take) error {
			var r proto.TablesResult
			err := t.Phase("tables", func() error {
				return l.vm.Agent().Call(ctx, proto.CmdTables, proto.TablesArgs{Buffers: c.buffers, Bytes: c.bytes}, &r)
			})
			t.Figure("map", report.Nanoseconds, float64(r.MapNS))
			t.Figure("use", report.Nanoseconds, float64(r.UseNS))
			t.Figure("unmap", report.Nanoseconds, float64(r.UnmapNS))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copies measures each engine at some sizes. The guest verifies what it copies.
func (l *life) copies(ctx context.Context) error {
	const rounds = 20
	for _, size := range []uint32{4 << 10, 1 << 20} {
		for _, engine := range []string{"m2mf", "ce0", "ce1"} {
			name := fmt.Sprintf("%d KiB, %s", size>>10, strings.ToUpper(engine))
			p := map[string]string{"bytes": fmt.Sprint(size), "engine": strings.ToUpper(engine), "rounds": fmt.Sprint(rounds)}
			err := l.take(name, p, func(t *scene.Take) error {
				var r proto.BenchResult
				err := t.Phase("all ways", func() error {
					return l.vm.Agent().Call(ctx, proto.CmdBench, proto.BenchArgs{Engines: []string{engine}, Sizes: []uint32{size}, Rounds: rounds, Registers: 1}, &r)
				})
				for _, c := range r.Copies {
					if c.Engine == engine {
						t.Figure(c.From+" to "+c.To, report.BytesPerSecond, c.MiBps*(1<<20))
					}
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// accesses measures the loads and stores of a program in the guest.
func (l *life) accesses(ctx context.Context) error {
	const n = 500
	return l.take("accesses", map[string]string{"accesses": fmt.Sprint(n)}, func(t *scene.Take) error {
		var r proto.BenchResult
		err := t.Phase("accesses", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdBench, proto.BenchArgs{Engines: []string{"m2mf"}, Sizes: []uint32{4096}, Rounds: 1, Registers: n}, &r)
		})
		if err == nil && len(r.Skipped) > 0 {
			err = fmt.Errorf("the guest could not measure: %s", strings.Join(r.Skipped, "; "))
		}
		for _, a := range r.Access {
			t.Figure(a.What, report.Nanoseconds, a.NS)
		}
		return err
	})
}

// bandwidth measures the processor's way to VRAM against that to its memory.
func (l *life) bandwidth(ctx context.Context) error {
	const n = 16 << 10
	return l.take("bandwidth", map[string]string{"bytes": fmt.Sprint(n)}, func(t *scene.Take) error {
		var r proto.BandwidthResult
		err := t.Phase("bandwidth", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdBandwidth, proto.BandwidthArgs{Bytes: n, BARMS: l.pick(100, 200)}, &r)
		})
		if err == nil && len(r.Skipped) > 0 {
			err = fmt.Errorf("the guest could not measure: %s", strings.Join(r.Skipped, "; "))
		}
		for i, w := range r.Windows {
			if i == 0 {
				t.Figure("RAM read", report.BytesPerSecond, w.RAMReadBps)
				t.Figure("RAM write", report.BytesPerSecond, w.RAMWriteBps)
			}
			bar := strings.ToUpper(w.Window)
			t.Figure(bar+" read", report.BytesPerSecond, w.ReadBps)
			t.Figure(bar+" read / RAM", report.Share, w.ReadToRAM)
			t.Figure(bar+" write", report.BytesPerSecond, w.WriteBps)
			t.Figure(bar+" write / RAM", report.Share, w.WriteToRAM)
		}
		return err
	})
}

// idle measures what this process uses while the guest's driver has nothing to do. It is
// let come to rest first.
func (l *life) idle(ctx context.Context) error {
	d := time.Duration(l.pick(300, 700)) * time.Millisecond
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.take("one idle guest", map[string]string{"ms": fmt.Sprint(d.Milliseconds())}, func(t *scene.Take) error {
		used, err := t.Idle(ctx, d)
		if err == nil {
			t.Figure("idle", report.Share, used)
		}
		return err
	})
}

// poweroff shuts the guest down; its driver saves what VRAM would lose.
func (l *life) poweroff(ctx context.Context) error {
	return l.take("poweroff", map[string]string{}, func(t *scene.Take) error {
		var guest float64
		err := t.Phase("poweroff", func() error {
			took, err := l.vm.TimedPoweroff(ctx)
			guest = float64(took)
			return err
		})
		t.Figure("guest's clock", report.Nanoseconds, guest)
		return err
	})
}
