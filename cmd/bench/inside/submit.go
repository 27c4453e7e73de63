package inside

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var submit = scene.Scenario{
	Name: "submit", About: "empty submissions, at most 256 under way; each releases a semaphore in the guest's memory",
	Cases: func(p scene.Params) []scene.Case {
		n := pick(p, 500, 5000)
		return []scene.Case{alone(fmt.Sprint("submissions=", n), 0, func(t *scene.Take, g *guest.Guest) error {
			r, err := newRinger(g)
			if err != nil {
				return err
			}
			err = t.Phase("submit", func() error { return r.storm(n) })
			t.Rate("submissions/s", float64(n))
			return err
		})}
	},
}

var doorbell = scene.Scenario{
	Name: "doorbell", About: "one submission at a time: the time of the launch, and the time until its work is done",
	Cases: func(p scene.Params) (out []scene.Case) {
		n := pick(p, 100, 1000)
		for _, policy := range []string{"off", "credit"} {
			c := alone("sched="+policy, 0, func(t *scene.Take, g *guest.Guest) error { return ringAll(t, g, n) })
			c.Shape.Policy, c.Virtual = policy, policy != "off"
			out = append(out, c)
		}
		return out
	},
}

// ringAll measures n submissions. The guest polls the semaphore of each.
func ringAll(t *scene.Take, g *guest.Guest, n int) error {
	r, err := newRinger(g)
	if err != nil {
		return err
	}
	if err := r.storm(maxUnderWay / 2); err != nil { // warm up
		return err
	}
	launches, works := make([]float64, n), make([]float64, n)
	err = t.Phase("one-at-a-time", func() error {
		for i := range n {
			at := time.Now()
			if err := r.submit(); err != nil {
				return err
			}
			launches[i] = float64(time.Since(at))
			if err := r.wait(r.done); err != nil {
				return err
			}
			works[i] = float64(time.Since(at))
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.Per(n)
	quantiles(t, "launch", launches)
	quantiles(t, "work", works)
	return nil
}

// quantiles adds the median and the 99th percentile of single times.
func quantiles(t *scene.Take, name string, each []float64) {
	slices.Sort(each)
	t.Metric(name+"-p50-ns", each[len(each)/2])
	t.Metric(name+"-p99-ns", each[len(each)*99/100])
}

// ringer submits as a driver whose ring and pushbuffer lie in its own memory: a submission is
// stores there, and one doorbell.
type ringer struct {
	g    *guest.Guest
	ch   *guest.Channel
	sem  []byte
	done uint32 // submissions so far
}

const (
	ringLog2    = 10
	maxUnderWay = 256 // less than the ring's entries
	pushSlot    = 32  // bytes of pushbuffer for one submission
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

// submit makes the next submission and rings the doorbell.
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

func (r *ringer) reached(n uint32) bool { return int32(le.Uint32(r.sem)-n) >= 0 }

// wait polls the semaphore until submission n is done. After about 20 us it sleeps between two
// polls, so that it does not keep the processor from the server for ever.
func (r *ringer) wait(n uint32) error {
	for range 200 {
		if r.reached(n) {
			return nil
		}
		runtime.Gosched()
	}
	for end := time.Now().Add(patience); !r.reached(n); time.Sleep(time.Microsecond) {
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("the semaphore stays at %d of %d", le.Uint32(r.sem), r.done), settle(r.g))
		}
	}
	return nil
}

func (r *ringer) storm(n int) error {
	for range n {
		if err := r.submit(); err != nil {
			return err
		}
		if r.done > maxUnderWay {
			if err := r.wait(r.done - maxUnderWay); err != nil {
				return err
			}
		}
	}
	return errors.Join(r.wait(r.done), settle(r.g))
}
