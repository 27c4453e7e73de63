package shares

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Play has throttles do their loads while during runs, and waits until all of it is
// done.
func Play(throttles []*Throttle, loads []Load, during func()) error {
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(throttles))
	for i, t := range throttles {
		wg.Go(func() { errs[i] = t.Run(loads[i], func(int) bool { return stop.Load() }) })
	}
	during()
	stop.Store(true)
	wg.Wait()
	return errors.Join(errs...)
}

// Work has each throttle do so many requests, and returns how long all of it took.
func Work(throttles []*Throttle, loads []Load, requests int) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make([]error, len(throttles))
	began := time.Now()
	for i, t := range throttles {
		wg.Go(func() { errs[i] = t.Run(loads[i], Times(requests)) })
	}
	wg.Wait()
	return time.Since(began), errors.Join(errs...)
}

// Window is what each throttle got of the card in a stretch of time.
type Window struct {
	Length time.Duration
	Busy   []time.Duration
}

// Unfairness is |t1-t2|/(t1+t2) of a window of two.
func (w *Window) Unfairness() float64 {
	a, b := w.Busy[0], w.Busy[1]
	if a+b == 0 {
		return math.NaN()
	}
	return math.Abs(float64(a-b)) / float64(a+b)
}

// Rate is the part of the window in which the card worked for any of them.
func (w *Window) Rate() float64 {
	all := time.Duration(0)
	for _, b := range w.Busy {
		all += b
	}
	return float64(all) / float64(w.Length)
}

// Windows watches the card for n stretches of one length, one after the other, by
// the wall clock: where they begin has nothing to do with what the card does.
func (h *Hall) Windows(throttles []*Throttle, n int, length time.Duration) (out []Window) {
	players := make([]*Player, len(throttles))
	for i, t := range throttles {
		players[i] = t.Player
	}
	next := time.Now()
	before, _ := h.Used(players)
	began := next
	for range n {
		next = next.Add(length)
		time.Sleep(time.Until(next))
		used, _ := h.Used(players)
		now := time.Now()
		w := Window{Length: now.Sub(began), Busy: make([]time.Duration, len(used))}
		for i := range used {
			w.Busy[i] = used[i] - before[i]
		}
		out = append(out, w)
		before, began = used, now
	}
	return out
}

// Median of some numbers; the mean of the two in the middle if they are even.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
