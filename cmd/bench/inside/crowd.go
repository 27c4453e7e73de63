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

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// crowd is many guests that work at the same time.
var crowd = scene.Scenario{
	Scenario: report.Scenario{
		Name: "crowd", Title: "Many guests on one card",
		About: "Each copies 256 KiB to VRAM and back, so many times, as fast as it can; fairness is the time of the first to finish by that of the last",
	},
	Cases: func(run report.Run) (out []scene.Case) {
		rounds := pick(run, 20, 100)
		for _, n := range pick(run, []int{1, 4}, []int{1, 2, 4, 8, 16, 32}) {
			out = append(out, scene.Case{
				Name: fmt.Sprintf("%d guests", n), Parameters: map[string]string{"guests": fmt.Sprint(n), "rounds": fmt.Sprint(rounds), "bytes": fmt.Sprint(crowdBytes)},
				Shape: setup.Shape{Card: 3 << 30, GPUs: n, VRAM: 64 << 20}, Virtual: n > 1,
				Prepare: func(ctx context.Context, b *setup.Bed) (io.Closer, error) { return gather(ctx, b) },
				Run:     func(_ context.Context, t *scene.Take) error { return t.State.(members).work(t, rounds) },
			})
		}
		return out
	},
}

const crowdBytes = 256 << 10

// member is one guest of a crowd.
type member struct {
	g         *guest.Guest
	ch        *guest.Channel
	src, back buffer
}

type members []*member

func join(ctx context.Context, seat *setup.Seat) (_ *member, err error) {
	m := new(member)
	if m.g, err = seat.Attach(ctx, guest.Config{RAM: 2*crowdBytes + 1<<20, Timeout: patience}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.g.Close())
		}
	}()
	s, err := m.g.NewSpace()
	if err != nil {
		return nil, err
	}
	var errs [3]error
	m.src, errs[0] = mapped(m.g, s, vaSource, crowdBytes, true)
	_, errs[1] = mapped(m.g, s, vaVRAM, crowdBytes, false)
	m.back, errs[2] = mapped(m.g, s, vaBack, crowdBytes, true)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if m.ch, err = m.g.NewChannel(1, s); err != nil {
		return nil, err
	}
	return m, errors.Join(m.ch.Finish(), settle(m.g))
}

// gather has one guest attach to each seat.
func gather(ctx context.Context, b *setup.Bed) (_ members, err error) {
	var all members
	for i, seat := range b.Seats {
		m, err := join(ctx, seat)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("guest %d: %w", i, err), all.Close())
		}
		pattern(m.src.Data, uint64(i))
		all = append(all, m)
	}
	return all, nil
}

// Close ends them.
func (all members) Close() error {
	var errs []error
	for _, m := range all {
		errs = append(errs, m.g.Close())
	}
	return errors.Join(errs...)
}

// copies has one guest copy to VRAM and back, and looks whether it was right.
func (m *member) copies(rounds int) error {
	for range rounds {
		if err := errors.Join(
			m.ch.Copy(guest.M2MF, vaVRAM, vaSource, crowdBytes), m.ch.Copy(guest.M2MF, vaBack, vaVRAM, crowdBytes), m.ch.Finish(),
		); err != nil {
			return err
		}
	}
	if err := settle(m.g); err != nil {
		return err
	}
	if !bytes.Equal(m.src.Data, m.back.Data) {
		return errors.New("the bytes that came back are not those that were sent")
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
	t.Figure("all together", report.BytesPerSecond, perSecond(2*crowdBytes*float64(rounds)*float64(len(all)), t.Last().NS))
	t.Figure("fairness", report.Share, slices.Min(took)/slices.Max(took))
	return nil
}

// neighbour is what a guest costs that does nothing.
var neighbour = scene.Scenario{
	Scenario: report.Scenario{
		Name: "neighbour", Title: "An idle neighbour",
		About: "Slowdown: a guest's copies beside a neighbour that has a channel and is idle, by those without it, less one, of many pairs in turns; " +
			"idle: processor time of the whole process while so many guests are attached and idle, as a share of one core",
	},
	Cases: func(run report.Run) []scene.Case {
		rounds, idle := pick(run, 20, 50), pick(run, 4, 32)
		pairs := pick(run, 2, 16)
		before, rest := pick(run, 50*time.Millisecond, 2*time.Second), pick(run, 100*time.Millisecond, 4*time.Second)
		return []scene.Case{
			{
				Name: "beside an idle guest", Parameters: map[string]string{"rounds": fmt.Sprint(rounds), "pairs": fmt.Sprint(pairs)},
				Shape: setup.Shape{Card: 512 << 20, GPUs: 2, VRAM: 64 << 20}, Virtual: true,
				Run: func(ctx context.Context, t *scene.Take) error { return beside(ctx, t, rounds, pairs) },
			},
			{
				Name: fmt.Sprintf("%d idle guests", idle), Parameters: map[string]string{"guests": fmt.Sprint(idle), "ms": fmt.Sprint(rest.Milliseconds())},
				Shape: setup.Shape{Card: 3 << 30, GPUs: idle, VRAM: 64 << 20}, Virtual: true,
				Run: func(ctx context.Context, t *scene.Take) error { return idles(ctx, t, before, rest) },
			},
		}
	},
}

// idles measures what the process uses while the guests of one set-up, and of no other,
// are attached and at rest: they have been for so long before. Nothing that looks after an
// idle guest does so less often than every four seconds.
func idles(ctx context.Context, t *scene.Take, before, d time.Duration) error {
	all, err := gather(ctx, t.Bed)
	if err != nil {
		return err
	}
	var used float64
	if err = settled(ctx, before); err == nil {
		used, err = t.Idle(ctx, d)
	}
	if err = errors.Join(err, all.Close()); err != nil {
		return err
	}
	t.Figure("idle", report.Share, used)
	return nil
}

// atRest is how long after its last work a guest leaves its neighbours alone: what it left
// behind has been cleared away.
const atRest = 50 * time.Millisecond

func settled(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// samples is how often each side of a pair is measured; its median counts.
const samples = 7

// beside measures the same copies alone and beside an idle neighbour, by turns that
// begin with either. The ratio of each pair is a value of its own: what the machine
// does besides is more than a neighbour costs, and only many pairs tell them apart.
func beside(ctx context.Context, t *scene.Take, rounds, pairs int) (err error) {
	worker, err := join(ctx, t.Bed.Seats[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.g.Close()) }()
	copies := func(name string) (float64, error) {
		if err := settled(ctx, atRest); err != nil {
			return 0, err
		}
		if err := worker.copies(rounds); err != nil { // what coming and going leaves to be paid for
			return 0, err
		}
		var took []float64
		for range samples {
			if err := t.Phase(name, func() error { return worker.copies(rounds) }); err != nil {
				return 0, err
			}
			took = append(took, t.Last().NS)
		}
		return stats.Median(took), nil
	}
	together := func() (ns float64, err error) {
		idle, err := join(ctx, t.Bed.Seats[1])
		if err != nil {
			return 0, err
		}
		defer func() {
			if err = errors.Join(err, idle.g.Close()); err != nil {
				return
			}
			select {
			case <-t.Bed.Seats[1].Gauge.Free():
			case <-ctx.Done():
				err = ctx.Err()
			}
		}()
		return copies("beside")
	}
	if err := worker.copies(rounds); err != nil { // what the first one pays for
		return err
	}
	for pair := range pairs {
		var with, without float64
		var errs [2]error
		if pair%2 == 0 {
			without, errs[0] = copies("alone")
			with, errs[1] = together()
		} else {
			with, errs[1] = together()
			without, errs[0] = copies("alone")
		}
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		t.Figure("slowdown", report.Share, with/without-1)
	}
	return nil
}
