package inside

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
	"github.com/umbra-gpu/umbra/tests/guest"
)

var le = binary.LittleEndian

func median(v []float64) float64 { return stats.Median(v) }

// storm rings doorbells for nothing.
var storm = scene.Scenario{
	Scenario: report.Scenario{
		Name: "storm", Title: "A storm of empty submissions",
		About: "Each is an entry of the ring and a doorbell; its work is to release a semaphore in the guest's memory. At most 256 are under way",
	},
	Cases: func(run report.Run) []scene.Case {
		n := pick(run, 500, 5000)
		return []scene.Case{{
			Name: fmt.Sprintf("%d submissions", n), Parameters: map[string]string{"submissions": fmt.Sprint(n)}, Shape: setup.Common, Modelled: true,
			Run: func(ctx context.Context, t *scene.Take) error {
				return attach(ctx, t, guest.Config{Timeout: patience}, func(g *guest.Guest) error {
					r, err := newRinger(g)
					if err != nil {
						return err
					}
					if err := t.Phase("submit", func() error { return r.storm(n) }); err != nil {
						return err
					}
					t.Figure("submissions", report.EachSecond, perSecond(float64(n), t.Last().NS))
					return nil
				})
			},
		}}
	},
}

// doorbell is how long the GPU takes to hear.
var doorbell = scene.Scenario{
	Scenario: report.Scenario{
		Name: "doorbell", Title: "From a doorbell to its work",
		About: "One empty submission at a time: from the write of GP_PUT until its semaphore, in the guest's memory, has been released",
	},
	Cases: func(run report.Run) []scene.Case {
		n := pick(run, 200, 2000)
		return []scene.Case{{
			Name: "one at a time", Parameters: map[string]string{"submissions": fmt.Sprint(n)}, Shape: setup.Common,
			Run: func(ctx context.Context, t *scene.Take) error {
				return attach(ctx, t, guest.Config{Timeout: patience}, func(g *guest.Guest) error {
					r, err := newRinger(g)
					if err != nil {
						return err
					}
					var each []float64
					err = t.Phase("submit", func() error {
						each, err = r.latencies(n)
						return err
					})
					if err != nil {
						return err
					}
					slices.Sort(each)
					t.Figure("p50", report.Nanoseconds, stats.Quantile(each, 0.50))
					t.Figure("p99", report.Nanoseconds, stats.Quantile(each, 0.99))
					return nil
				})
			},
		}}
	},
}

// ringer submits as a driver does whose ring and pushbuffer lie in its own memory:
// a submission is stores there, and one doorbell.
type ringer struct {
	g    *guest.Guest
	ch   *guest.Channel
	sem  []byte
	done uint32 // submissions so far
}

const (
	ringLog2 = 10
	underWay = 256 // at most; fewer than the ring has entries
	pushSlot = 32  // bytes of pushbuffer for one submission
)

func newRinger(g *guest.Guest) (*ringer, error) {
	s, err := g.NewSpace()
	if err != nil {
		return nil, err
	}
	sem, err := mapped(g, s, vaSem, 4096, true)
	if err != nil {
		return nil, err
	}
	ch, err := g.NewChannelWith(1, s, guest.ChannelConfig{RingLog2: ringLog2, RingRAM: true, PushRAM: true})
	if err != nil {
		return nil, err
	}
	return &ringer{g: g, ch: ch, sem: sem.Data}, settle(g)
}

// submit makes the next submission and rings.
func (r *ringer) submit() error {
	slot := uint64(r.done % (1 << ringLog2))
	r.done++
	var p guest.Push
	p.Semaphore(vaSem, r.done, guest.SemRelease|guest.SemOneWord)
	at := slot * pushSlot
	for i, w := range p.Words {
		le.PutUint32(r.ch.PushBuffer().Data[at+uint64(i)*4:], w)
	}
	le.PutUint64(r.ch.Ring().Data[slot*8:], guest.GPEntry(r.ch.PushVA()+at, len(p.Words)))
	return r.ch.Doorbell(r.done % (1 << ringLog2))
}

// Looks at a semaphore that come one right after the other, about 20 us of them.
// Then the kernel may have the processor in between: on a busy machine who only
// looks takes it from who should do the work.
const eagerLooks = 200

// reached waits until a submission has been done. It looks at memory, which costs
// the server nothing.
func (r *ringer) reached(n uint32) error {
	var end time.Time
	for looks := 1; int32(le.Uint32(r.sem)-n) < 0; looks++ {
		switch {
		case looks < eagerLooks:
			runtime.Gosched()
			continue
		case looks == eagerLooks:
			end = time.Now().Add(patience)
		case time.Now().After(end):
			return errors.Join(fmt.Errorf("the semaphore stays at %d of %d", le.Uint32(r.sem), r.done), settle(r.g))
		}
		time.Sleep(time.Microsecond)
	}
	return nil
}

func (r *ringer) storm(n int) error {
	for range n {
		if err := r.submit(); err != nil {
			return err
		}
		if r.done > underWay {
			if err := r.reached(r.done - underWay); err != nil {
				return err
			}
		}
	}
	return errors.Join(r.reached(r.done), settle(r.g))
}

func (r *ringer) latencies(n int) ([]float64, error) {
	each := make([]float64, 0, n)
	for range n {
		at := time.Now()
		if err := r.submit(); err != nil {
			return nil, err
		}
		if err := r.reached(r.done); err != nil {
			return nil, err
		}
		each = append(each, float64(time.Since(at)))
	}
	return each, nil
}
