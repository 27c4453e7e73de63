package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/tests/shares"
)

// table is a card with throttles at it.
type table struct {
	hall      *shares.Hall
	throttles []*shares.Throttle
	each      []time.Duration // a launch of each
}

func newTable(cfg *sched.Config, n int) (t *table, err error) {
	t = new(table)
	if t.hall, err = shares.NewHall(cfg); err != nil {
		return nil, err
	}
	for i := range n {
		p, err := t.hall.Join(fmt.Sprint("g", i), sched.NodeConfig{})
		if err != nil {
			return nil, errors.Join(err, t.hall.Close())
		}
		th, err := p.Throttle()
		if err != nil {
			return nil, errors.Join(err, t.hall.Close())
		}
		t.throttles = append(t.throttles, th)
		each, err := th.Calibrate(t.hall)
		if err != nil {
			return nil, errors.Join(err, t.hall.Close())
		}
		t.each = append(t.each, each)
	}
	return t, nil
}

// load is requests of a length for a throttle.
func (t *table) load(i int, length time.Duration, ahead int) shares.Load {
	l := shares.Load{Launches: max(int((length+t.each[i]/2)/t.each[i]), 1), Ahead: ahead, Fence: 1}
	if ahead == 0 {
		l.Ahead = max(min(int(120*time.Millisecond/length), 1600), 3)
		l.Fence = max(l.Ahead/16, 1)
	}
	return l
}

// fair measures the unfairness of every pair of lengths.
func fair(o *options) error {
	t, err := newTable(&o.set, 2)
	if err != nil {
		return err
	}
	defer t.hall.Close()
	fmt.Printf("a launch takes %v and %v; unfairness in %%, median and worst of %d windows of %v\n", t.each[0], t.each[1], o.windows, o.length)
	fmt.Printf("%9s %9s", "", "")
	for _, p := range o.policies {
		fmt.Printf("   %9s %7s %6s", p, "worst", "busy")
	}
	fmt.Println()
	all := make([][]float64, len(o.policies))
	medians := make([][]float64, len(o.policies))
	n := 0
	for i, a := range o.lengths {
		for _, b := range o.lengths[i:] {
			if n++; n%o.of != o.part-1 {
				continue
			}
			fmt.Printf("%9v %9v", a, b)
			for k, p := range o.policies {
				w, was, err := t.pair(o, p, a, b)
				if err != nil {
					return err
				}
				var un, rate []float64
				for i := range w {
					un = append(un, 100*w[i].Unfairness())
					rate = append(rate, w[i].Rate())
				}
				all[k] = append(all[k], un...)
				medians[k] = append(medians[k], shares.Median(un))
				fmt.Printf("   %9.2f %7.2f %6.3f  (%.2f and %.2f ms)", shares.Median(un), slices.Max(un), shares.Median(rate), was[0].Seconds()*1e3, was[1].Seconds()*1e3)
			}
			fmt.Println()
		}
	}
	fmt.Println("of all windows: median, 95 of 100, worst; the worst median of a pair")
	for k, p := range o.policies {
		s := slices.Sorted(slices.Values(all[k]))
		fmt.Printf("%9s  %6.2f %6.2f %6.2f  %6.2f  (%d windows)\n", p, shares.Median(s), s[len(s)*95/100], s[len(s)-1], slices.Max(medians[k]), len(s))
	}
	return nil
}

// pair measures one pair of lengths. How long a launch takes depends on what else the
// machine does, the other guest for one, so it is measured anew before; it comes back
// with what was measured, as the mean length of a request.
func (t *table) pair(o *options, p string, a, b time.Duration) (out []shares.Window, was []time.Duration, err error) {
	cfg, err := o.schedule(p)
	if err != nil {
		return nil, nil, err
	}
	if err := t.hall.Agg.SetSchedule(cfg); err != nil {
		return nil, nil, err
	}
	play := func(n int, length time.Duration) ([]shares.Load, []time.Duration, error) {
		loads := []shares.Load{t.load(0, a, o.ahead), t.load(1, b, o.ahead)}
		each := make([]time.Duration, len(loads))
		err := shares.Play(t.throttles, loads, func() {
			time.Sleep(200 * time.Millisecond) // until both have filled their rings
			before := make([]uint64, len(loads))
			for i, th := range t.throttles {
				before[i] = th.Launched(t.hall)
			}
			out = t.hall.Windows(t.throttles, n, length)
			for i, th := range t.throttles {
				busy := time.Duration(0)
				for _, w := range out {
					busy += w.Busy[i]
				}
				if n := th.Launched(t.hall) - before[i]; n > 0 {
					each[i] = busy / time.Duration(n)
				}
			}
		})
		return loads, each, err
	}
	_, each, err := play(1, 500*time.Millisecond)
	if err != nil {
		return nil, nil, err
	}
	for i, d := range each {
		if d > 0 {
			t.each[i] = d
		}
	}
	loads, each, err := play(o.windows, o.length)
	for i, d := range each {
		was = append(was, d*time.Duration(loads[i].Launches))
	}
	return out, was, err
}
