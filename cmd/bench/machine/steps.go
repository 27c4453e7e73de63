package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// probe loads nouveau.
func (l *life) probe(ctx context.Context) error {
	return l.measure("", func(t *scene.Take) error {
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
		t.Metric("guest-clock-ns", float64(loaded.Loaded[n-1].InitNS))
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

// contexts creates and destroys clients of the driver, each with an address space and a channel.
func (l *life) contexts(ctx context.Context) error {
	for _, n := range []int{1, l.pick(4, 8)} {
		err := call(ctx, l, fmt.Sprint("contexts=", n), proto.CmdContexts, proto.ContextsArgs{Count: n}, func(t *scene.Take, r *proto.ContextsResult) error {
			t.Metric("create-ns", float64(r.CreateNS))
			t.Metric("destroy-ns", float64(r.DestroyNS))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func fencesRight(r *proto.FencesResult) error {
	if r.Wrong > 0 {
		return errors.New("fences came out wrong")
	}
	return nil
}

// fences measures submissions, one at a time, by the guest's clock.
func (l *life) fences(ctx context.Context) error {
	n := l.pick(100, 300)
	return call(ctx, l, "fences", proto.CmdFences, proto.FencesArgs{Count: n, SubmitOnly: true}, func(t *scene.Take, r *proto.FencesResult) error {
		t.Per(n)
		t.Time(float64(r.MedianNS))
		t.Metric("fence-p50-ns", float64(r.MedianNS))
		t.Metric("fence-p99-ns", float64(r.P99NS))
		return fencesRight(r)
	})
}

// submit measures small submissions, many under way, by the guest's clock.
func (l *life) submit(ctx context.Context) error {
	const batch = 64
	n := l.pick(10, 20)
	return call(ctx, l, fmt.Sprint("submissions=", n*batch), proto.CmdFences, proto.FencesArgs{Count: n, Batch: batch, SubmitOnly: true}, func(t *scene.Take, r *proto.FencesResult) error {
		t.Per(1)
		t.Time(float64(r.MedianNS) * float64(n))
		if r.MedianNS > 0 {
			t.Metric("submissions/s", batch/(float64(r.MedianNS)/1e9))
		}
		return fencesRight(r)
	})
}

// doorbells measures launches on one channel by the guest's clock.
func (l *life) doorbells(ctx context.Context) error {
	if err := l.vm.Agent().Call(ctx, proto.CmdDoorbellOpen, nil, nil); err != nil {
		return err
	}
	args := proto.DoorbellArgs{Count: l.pick(100, 400)}
	err := call(ctx, l, "doorbells", proto.CmdDoorbell, args, func(t *scene.Take, r *proto.DoorbellResult) error {
		if r.Count < 1 {
			return errors.New("the guest rang no doorbell")
		}
		t.Per(r.Count)
		t.Metric("launch-p50-ns", float64(r.P50NS))
		t.Metric("launch-p99-ns", float64(r.P99NS))
		t.Metric("work-p50-ns", float64(r.WorkP50NS))
		t.Metric("work-p99-ns", float64(r.WorkP99NS))
		return nil
	})
	return errors.Join(err, l.vm.Agent().Call(ctx, proto.CmdDoorbellClose, nil, nil))
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
		name := fmt.Sprintf("%s/buffers=%d", c.name, c.buffers)
		err := call(ctx, l, name, proto.CmdTables, proto.TablesArgs{Buffers: c.buffers, Bytes: c.bytes}, func(t *scene.Take, r *proto.TablesResult) error {
			t.Metric("map-ns", float64(r.MapNS))
			t.Metric("use-ns", float64(r.UseNS))
			t.Metric("unmap-ns", float64(r.UnmapNS))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copies measures each engine at two sizes. The guest verifies what it copies.
func (l *life) copies(ctx context.Context) error {
	for _, size := range []uint32{4 << 10, 1 << 20} {
		for _, engine := range []string{"m2mf", "ce0", "ce1"} {
			name := fmt.Sprintf("size=%dKiB/engine=%s", size>>10, strings.ToUpper(engine))
			args := proto.BenchArgs{Engine: engine, Bytes: size, Rounds: 20, Registers: 1}
			err := call(ctx, l, name, proto.CmdBench, args, func(t *scene.Take, r *proto.BenchResult) error {
				for _, c := range r.Copies {
					t.Metric(unit(c.From+"-to-"+c.To)+"-B/s", c.MiBps*(1<<20))
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unit makes a text a part of a unit.
func unit(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
}

func skipped(list []string) error {
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("the guest could not measure: %s", strings.Join(list, "; "))
}

// accesses measures loads and stores of a program in the guest.
func (l *life) accesses(ctx context.Context) error {
	args := proto.BenchArgs{Engine: "m2mf", Bytes: 4096, Rounds: 1, Registers: 500}
	return call(ctx, l, "accesses", proto.CmdBench, args, func(t *scene.Take, r *proto.BenchResult) error {
		for _, a := range r.Access {
			t.Metric(unit(a.What)+"-ns", a.NS)
		}
		return skipped(r.Skipped)
	})
}

// bandwidth measures how fast the guest's processor reaches VRAM. Its time is that of one read of
// all bytes.
func (l *life) bandwidth(ctx context.Context) error {
	args := proto.BandwidthArgs{Bytes: 16 << 10, BARMS: l.pick(100, 200)}
	return call(ctx, l, "bytes=16KiB", proto.CmdBandwidth, args, func(t *scene.Take, r *proto.BandwidthResult) error {
		for i, w := range r.Windows {
			if i == 0 {
				t.Per(1)
				t.Time(float64(args.Bytes) / w.ReadBps * 1e9)
				t.Metric("ram-read-B/s", w.RAMReadBps)
				t.Metric("ram-write-B/s", w.RAMWriteBps)
			}
			t.Metric(unit(w.Window)+"-read-B/s", w.ReadBps)
			t.Metric(unit(w.Window)+"-write-B/s", w.WriteBps)
		}
		return skipped(r.Skipped)
	})
}

// idle measures the processor time of this process while the guest's driver is idle.
func (l *life) idle(ctx context.Context) error {
	d := time.Duration(l.pick(300, 700)) * time.Millisecond
	if err := scene.Sleep(ctx, d); err != nil {
		return err
	}
	return l.measure("idle=1", func(t *scene.Take) error { return t.Idle(ctx, d) })
}

// poweroff shuts the guest down. Its driver saves what VRAM would lose.
func (l *life) poweroff(ctx context.Context) error {
	return l.measure("poweroff", func(t *scene.Take) error {
		var took time.Duration
		err := t.Phase("poweroff", func() (err error) {
			took, err = l.vm.TimedPoweroff(ctx)
			return err
		})
		t.Metric("guest-clock-ns", float64(took))
		return err
	})
}
