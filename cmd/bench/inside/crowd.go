package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var crowd = scene.Scenario{
	Name: "crowd", About: "many guests copy at once; B/s is of all together, traps/guest should not depend on how many they are; fairness is the time of the first to finish by that of the last",
	Cases: func(p scene.Params) (out []scene.Case) {
		rounds := pick(p, 20, 100)
		for _, n := range pick(p, []int{1, 4}, []int{1, 2, 4, 8, 16, 32}) {
			out = append(out, scene.Case{
				Name: fmt.Sprint("guests=", n), Shape: setup.Shape{Card: 3 << 30, GPUs: n, VRAM: 64 << 20}, Virtual: true,
				Prepare: func(ctx context.Context, s *setup.Server) (io.Closer, error) { return attachAll(ctx, s) },
				Run:     func(_ context.Context, t *scene.Take) error { return t.State.(members).work(t, rounds) },
			})
		}
		return out
	},
}

const (
	crowdBytes = 256 << 10
	// crowdTouched is what all guests' copies touch together, by turns, however many guests they are:
	// a few guests' bytes would fit the processor's cache, and those of many would not.
	crowdTouched = 32 * crowdBytes
)

type members []*copier

func newMember(ctx context.Context, endpoint *setup.Endpoint, each uint64) (*copier, error) {
	g, err := endpoint.Attach(ctx, guest.Config{RAM: 2*each + 1<<20, Timeout: patience})
	if err != nil {
		return nil, err
	}
	c, err := newCopier(g, each)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return c, nil
}

// attachAll attaches one guest to each endpoint.
func attachAll(ctx context.Context, s *setup.Server) (_ members, err error) {
	var all members
	for i, endpoint := range s.Endpoints {
		m, err := newMember(ctx, endpoint, crowdTouched/uint64(len(s.Endpoints)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("guest %d: %w", i, err), all.Close())
		}
		pattern(m.src.Data, uint64(i))
		all = append(all, m)
	}
	return all, nil
}

// Close disconnects all.
func (all members) Close() error {
	var errs []error
	for _, m := range all {
		errs = append(errs, m.g.Close())
	}
	return errors.Join(errs...)
}

// copies copies to VRAM and back, and verifies the bytes. Each round costs the same traps.
func (m *copier) copies(rounds int) error {
	for i := range rounds {
		at := uint64(i) * crowdBytes % uint64(len(m.src.Data))
		if err := errors.Join(
			m.ch.Copy(guest.M2MF, vaVRAM+at, vaSource+at, crowdBytes), m.ch.Copy(guest.M2MF, vaBack+at, vaVRAM+at, crowdBytes), m.ch.FinishByEvent(),
		); err != nil {
			return err
		}
	}
	if err := settle(m.g); err != nil {
		return err
	}
	if n := min(rounds*crowdBytes, len(m.src.Data)); !bytes.Equal(m.src.Data[:n], m.back.Data[:n]) {
		return errBytes
	}
	return nil
}

func (all members) work(t *scene.Take, rounds int) error {
	took, errs := make([]float64, len(all)), make([]error, len(all))
	err := t.Phase("together", func() error {
		var wait sync.WaitGroup
		at := time.Now()
		for i, m := range all {
			wait.Go(func() {
				errs[i] = m.copies(rounds)
				took[i] = float64(time.Since(at))
			})
		}
		wait.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	t.Rate("B/s", 2*crowdBytes*float64(rounds)*float64(len(all)))
	t.Metric("traps/guest", t.Traps()/float64(len(all)))
	t.Metric("fairness", slices.Min(took)/slices.Max(took))
	return nil
}

var neighbour = scene.Scenario{
	Name: "neighbour", About: "what a guest costs that has a channel and does nothing: others' copies beside it, and the processor time of many of them",
	Cases: func(p scene.Params) []scene.Case {
		rounds, pairs := pick(p, 5, 50), pick(p, 1, 16)
		idle := pick(p, 4, 32)
		before, rest := pick(p, 50*time.Millisecond, 2*time.Second), pick(p, 100*time.Millisecond, 4*time.Second)
		return []scene.Case{
			{
				Name: "copies", Shape: setup.Shape{Card: 512 << 20, GPUs: 2, VRAM: 64 << 20}, Virtual: true,
				Run: func(ctx context.Context, t *scene.Take) error { return beside(ctx, t, rounds, pairs) },
			},
			{
				Name: fmt.Sprint("idle=", idle), Shape: setup.Shape{Card: 3 << 30, GPUs: idle, VRAM: 64 << 20}, Virtual: true,
				Run: func(ctx context.Context, t *scene.Take) error { return idles(ctx, t, before, rest) },
			},
		}
	},
}

// idles measures the processor time of this process while all guests are idle. The longest
// interval of periodic work for an idle guest is four seconds.
func idles(ctx context.Context, t *scene.Take, before, d time.Duration) error {
	all, err := attachAll(ctx, t.Server)
	if err != nil {
		return err
	}
	if err = scene.Sleep(ctx, before); err == nil {
		err = t.Idle(ctx, d)
	}
	return errors.Join(err, all.Close())
}

// beside measures the same copies alone and beside an idle neighbour, in many pairs. The metric is
// the median of the pairs' ratios: a neighbour costs less than the machine's noise.
func beside(ctx context.Context, t *scene.Take, rounds, pairs int) (err error) {
	worker, err := newMember(ctx, t.Server.Endpoints[0], crowdBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.g.Close()) }()
	copies := func(name string) (took float64, err error) {
		if err := worker.copies(rounds); err != nil { // warm up
			return 0, err
		}
		before := t.Took(name)
		err = t.Phase(name, func() error { return worker.copies(7 * rounds) })
		return float64(t.Took(name) - before), err
	}
	var ratios []float64
	for range pairs {
		alone, err := copies("alone")
		if err != nil {
			return err
		}
		idle, err := newMember(ctx, t.Server.Endpoints[1], crowdBytes)
		if err != nil {
			return err
		}
		with, err := copies("beside")
		if err := errors.Join(err, idle.g.Close(), t.Server.Endpoints[1].WaitFree(ctx)); err != nil {
			return err
		}
		ratios = append(ratios, with/alone)
	}
	t.Per(pairs)
	t.Time(float64(t.Took("beside")) / float64(pairs))
	t.Metric("beside/alone", result.Summarize(ratios).Center)
	return nil
}
