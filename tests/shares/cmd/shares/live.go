package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/tests/shares"
)

// step is a change under load and what the shares are to be afterwards.
type step struct {
	what   string
	change func(t *table, cfg sched.Config) error
	want   func(i int) float64 // of all, not yet in proportion
}

const crowd = 8

// heavy is the throttle whose part is changed.
const heavy = 3

var steps = []step{
	{"weight 100 to 400", func(t *table, _ sched.Config) error {
		return t.throttles[heavy].Player.Guest.SetShare(sched.NodeConfig{Weight: 400})
	}, func(i int) float64 {
		if i == heavy {
			return 4
		}
		return 1
	}},
	{"policy to band", func(t *table, cfg sched.Config) error {
		cfg.Policy = sched.Band
		return t.hall.Agg.SetSchedule(cfg)
	}, func(i int) float64 {
		if i == heavy {
			return 4
		}
		return 1
	}},
	{"policy to credit, weight 400 to 50", func(t *table, cfg sched.Config) error {
		return errors.Join(t.hall.Agg.SetSchedule(cfg), t.throttles[heavy].Player.Guest.SetShare(sched.NodeConfig{Weight: 50}))
	}, func(i int) float64 {
		if i == heavy {
			return 0.5
		}
		return 1
	}},
	{"weight 50 to 800, cap 0 to 20 %", func(t *table, _ sched.Config) error {
		return t.throttles[heavy].Player.Guest.SetShare(sched.NodeConfig{Weight: 800, Cap: 200})
	}, func(i int) float64 {
		if i == heavy {
			return 0.2
		}
		return 0.8 / (crowd - 1)
	}},
	{"no cap, weight 100", func(t *table, _ sched.Config) error {
		return t.throttles[heavy].Player.Guest.SetShare(sched.NodeConfig{})
	}, func(int) float64 { return 1 }},
}

// live has eight guests work while policies, weights and caps change, and shows how
// far their shares are from what they are to be, in windows from the change on. All
// that was submitted is counted at the end.
func live(o *options) error {
	t, err := newTable(&o.set, crowd)
	if err != nil {
		return err
	}
	defer t.hall.Close()
	loads := make([]shares.Load, crowd)
	for i := range loads {
		loads[i] = t.load(i, []time.Duration{200 * time.Microsecond, time.Millisecond, 3 * time.Millisecond, 500 * time.Microsecond}[i%4], 0)
	}
	const windows = 8
	length := o.length / 4
	fmt.Printf("share of the changed guest, %%, and the largest error of any, points, in windows of %v after each change\n", length)
	for i := range t.throttles {
		t.throttles[i].Sent, t.throttles[i].Ended = 0, 0
	}
	err = shares.Play(t.throttles, loads, func() {
		time.Sleep(time.Second)
		for _, s := range steps {
			if err = s.change(t, o.set); err != nil {
				return
			}
			all := 0.0
			for i := range crowd {
				all += s.want(i)
			}
			fmt.Printf("%-36s want %5.2f:", s.what, 100*s.want(heavy)/all)
			for _, w := range t.hall.Windows(t.throttles, windows, length) {
				sum, worst := time.Duration(0), 0.0
				for _, b := range w.Busy {
					sum += b
				}
				for i, b := range w.Busy {
					worst = max(worst, math.Abs(100*float64(b)/float64(sum)-100*s.want(i)/all))
				}
				fmt.Printf("  %5.2f (%.2f)", 100*float64(w.Busy[heavy])/float64(sum), worst)
			}
			fmt.Println()
		}
	})
	if err != nil {
		return err
	}
	counts := t.hall.Agg.ScheduleCounts()
	lost := slices.IndexFunc(t.throttles, func(t *shares.Throttle) bool { return t.Sent != t.Ended })
	if lost >= 0 || counts.UnknownWork != 0 {
		return fmt.Errorf("guest %d: %d submitted, %d ended; %+v", lost, t.throttles[max(lost, 0)].Sent, t.throttles[max(lost, 0)].Ended, counts)
	}
	sum := uint64(0)
	for _, th := range t.throttles {
		sum += th.Ended
	}
	fmt.Printf("%d requests were submitted, and all have ended once\n", sum)
	return nil
}
