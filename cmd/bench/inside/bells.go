package inside

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// bells is what one doorbell costs whom, as it is trapped or found.
var bells = scene.Scenario{
	Scenario: report.Scenario{
		Name: report.Bells, Title: "What a doorbell costs",
		About: "The guest: a store of GP_PUT without news; a launch, which is all that a submission takes the guest; until its work is done; one of several rung one behind the other. " +
			"The server: processor time for a store and for a launch with its work, and how often its threads were woken for one",
	},
	Cases: func(run report.Run) (out []scene.Case) {
		n := pick(run, 100, 1000)
		for _, s := range scene.Schedulers {
			out = append(out, scene.Case{
				Name: s.Name, Parameters: s.Parameters(n), Shape: s.Shape(setup.Common), Virtual: s.Virtual(),
				For: func(row *setup.Row) bool { return row.Bells },
				Run: func(ctx context.Context, t *scene.Take) error {
					return attach(ctx, t, guest.Config{Timeout: patience}, func(g *guest.Guest) error { return ringAll(t, g, n) })
				},
			})
		}
		return out
	},
}

const together = 10

// ringAll is one turn of it. While the server's time is measured, the guest sleeps
// between its looks at the semaphore, for it takes the processor from the server; while
// its own is, it does not.
func ringAll(t *scene.Take, g *guest.Guest, n int) error {
	r, err := newRinger(g)
	if err != nil {
		return err
	}
	if err := r.storm(underWay / 2); err != nil { // what the first ones pay for
		return err
	}
	put := r.done % (1 << ringLog2)
	// Half of the stores are timed one by one, for the quantile, and half some together: to
	// look at the clock takes as long as a store that nobody traps.
	stores := make([]float64, n/2)
	some := make([]float64, n/2/together)
	stored, err := t.ServerTime("store", func() error {
		for i := range stores {
			at := time.Now()
			if err := r.ch.Doorbell(put); err != nil {
				return err
			}
			stores[i] = float64(time.Since(at))
		}
		if err := settle(g); err != nil {
			return err
		}
		for i := range some {
			at := time.Now()
			for range together {
				if err := r.ch.Doorbell(put); err != nil {
					return err
				}
			}
			some[i] = float64(time.Since(at)) / together
		}
		return settle(g)
	})
	if err != nil {
		return err
	}
	t.Figure(report.BellStore, report.Nanoseconds, median(some))
	t.Figure("store p99", report.Nanoseconds, quantile(stores, 0.99))
	scene.Each(t, "server, a store", stored, n)

	launches, works := make([]float64, n), make([]float64, n)
	err = t.Phase("launch", func() error {
		for i := range n {
			at := time.Now()
			if err := r.submit(); err != nil {
				return err
			}
			launches[i] = float64(time.Since(at))
			if err := r.reached(r.done); err != nil {
				return err
			}
			works[i] = float64(time.Since(at))
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.Figure(report.BellLaunch, report.Nanoseconds, quantile(launches, 0.5))
	t.Figure("launch p99", report.Nanoseconds, quantile(launches, 0.99))
	t.Figure(report.BellWork, report.Nanoseconds, quantile(works, 0.5))
	t.Figure("work p99", report.Nanoseconds, quantile(works, 0.99))

	looks := t.Bed.Looks()
	served, err := t.ServerTime("served", func() error {
		for range n {
			if err := r.submit(); err != nil {
				return err
			}
			if err := r.asleep(r.done); err != nil {
				return err
			}
		}
		return settle(g)
	})
	if err != nil {
		return err
	}
	scene.Each(t, "server, a launch", served, n)
	scene.Woken(t, looks, n)

	const behind = 8
	rounds := max(n/behind, 1)
	if err := t.Phase("behind", func() error {
		for range rounds {
			for range behind {
				if err := r.submit(); err != nil {
					return err
				}
			}
			if err := r.reached(r.done); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	t.Figure("one of 8", report.Nanoseconds, t.Last().NS/float64(rounds*behind))
	return nil
}

func quantile(each []float64, q float64) float64 {
	slices.Sort(each)
	return stats.Quantile(each, q)
}

// asleep is reached for one that leaves the processor to others at once.
func (r *ringer) asleep(n uint32) error {
	for end := time.Now().Add(patience); int32(le.Uint32(r.sem)-n) < 0; {
		if time.Now().After(end) {
			return fmt.Errorf("the semaphore stays at %d of %d", le.Uint32(r.sem), r.done)
		}
		pause := unix.NsecToTimespec(int64(20 * time.Microsecond))
		_ = unix.Nanosleep(&pause, nil) // woken early, it looks early
	}
	return nil
}
