package bench

import (
	"fmt"
	"runtime"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var submit = scenario{
	name: "submit", about: "empty submissions, at most 256 under way; each releases a semaphore in the guest's memory",
	inMachine: (*life).submit,
	cases: func(quick bool) []testCase {
		n := pick(quick, 500, 5000)
		return []testCase{alone(fmt.Sprint("submissions=", n), 0, func(t *take, g *guest.Guest) {
			r := newRinger(g)
			t.metric("submissions/s", float64(n)/t.phase("", func() { r.storm(n) }).Seconds())
		})}
	},
}

var doorbell = scenario{
	name: "doorbell", about: "one submission at a time: the time of the launch, and the time until its work is done",
	inMachine: (*life).fences,
	cases: func(quick bool) (out []testCase) {
		for _, policy := range []string{"off", "credit"} {
			c := alone("sched="+policy, 0, func(t *take, g *guest.Guest) { oneAtATime(t, g, pick(quick, 100, 1000)) })
			c.shape.policy, c.virtual = policy, policy != "off"
			out = append(out, c)
		}
		return out
	},
}

// oneAtATime measures n submissions. The guest polls the semaphore of each.
func oneAtATime(t *take, g *guest.Guest, n int) {
	r := newRinger(g)
	r.storm(maxUnderWay / 2) // warm up
	launches, works := make([]float64, n), make([]float64, n)
	t.phase("", func() {
		for i := range n {
			at := time.Now()
			r.submit()
			launches[i] = float64(time.Since(at))
			r.wait(r.done)
			works[i] = float64(time.Since(at))
		}
	})
	t.ops = n
	t.quantiles("launch", launches)
	t.quantiles("work", works)
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

func newRinger(g *guest.Guest) *ringer {
	s := get(g.NewSpace())
	sem := mapped(g, s, vaSem, 4096, true)
	ch := get(g.NewChannelWith(1, s, guest.ChannelConfig{RingLog2: ringLog2, RingRAM: true, PushRAM: true}))
	settle(g)
	return &ringer{g: g, ch: ch, sem: sem.Data}
}

// submit makes the next submission and rings the doorbell.
func (r *ringer) submit() {
	slot := uint64(r.done % (1 << ringLog2))
	r.done++
	var p guest.Push
	p.Semaphore(vaSem, r.done, guest.SemRelease|guest.SemOneWord)
	at := slot * pushSlot
	for i, w := range p.Words {
		le.PutUint32(r.ch.PushBuffer().Data[at+uint64(i)*4:], w)
	}
	le.PutUint64(r.ch.Ring().Data[slot*8:], guest.GPEntry(r.ch.PushVA()+at, len(p.Words)))
	must(r.ch.Doorbell(r.done % (1 << ringLog2)))
}

// wait polls the semaphore until submission n is done. After about 20 us it sleeps between two
// polls, so that it does not keep the processor from the server for ever.
func (r *ringer) wait(n uint32) {
	end := time.Now().Add(patience)
	for i := 0; int32(le.Uint32(r.sem)-n) < 0; i++ {
		if i < 200 {
			runtime.Gosched()
		} else if time.Sleep(time.Microsecond); time.Now().After(end) {
			must(r.g.Sync(), fmt.Errorf("the semaphore stays at %d of %d", le.Uint32(r.sem), r.done))
		}
	}
}

func (r *ringer) storm(n int) {
	for range n {
		if r.submit(); r.done > maxUnderWay {
			r.wait(r.done - maxUnderWay)
		}
	}
	r.wait(r.done)
	settle(r.g)
}
