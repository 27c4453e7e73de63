// Package model is a card in virtual time, and guests that use it. The scheduler's tests and
// umbra sched simulate use it with the real scheduler.
//
// The model has all properties that shares depend on: the card takes requests from its channels
// in turn, one of each, and interrupts one only if it can and its channel is paused. Its engines work
// in parallel, channels wait for semaphores, and the fetch pointer runs ahead of completed work. Time
// is an argument.
//
// The package has no goroutines, locks or global state.
package model

import (
	"math"
	"time"
)

// never is a time that is never reached.
const never = time.Duration(math.MaxInt64)

// Request is a request of a channel to the card.
type Request struct {
	Engine  int
	Busy    time.Duration
	Endless bool // it never ends; Busy is ignored
	Wait    int  // semaphore that it waits for, plus one
	Value   int  // which must be this or more
	Signal  int  // semaphore that it raises by one at its end, plus one

	burst *burst // of the submitter
}

// Completion is a request that ended.
type Completion struct {
	Channel, Engine int
	Began, Done     time.Duration
	burst           *burst
}

// Card is the model.
type Card struct {
	now        time.Duration
	engines    []engine
	channels   []channel
	semaphores []int
	queued     []int // requests that have not ended, by engine
	done       []Completion

	// Unresponsive is a card that completes no more work.
	Unresponsive bool
	// Interrupts is a card that interrupts a request when its channel is paused, and reports the
	// time of one that runs.
	Interrupts bool
}

type engine struct {
	channel int // at work for, -1 for none
	last    int // had the last turn
	began   time.Duration
	end     time.Duration
	busy    time.Duration
}

type channel struct {
	queue  []Request
	dead   bool
	paused bool
	used   time.Duration // by its requests, but for the one that runs
}

// NewCard makes a card with some engines.
func NewCard(engines, semaphores int) *Card {
	c := &Card{engines: make([]engine, engines), semaphores: make([]int, semaphores), queued: make([]int, engines)}
	for e := range c.engines {
		c.engines[e] = engine{channel: -1, last: -1, end: never}
	}
	return c
}

// AddChannel makes a channel.
func (c *Card) AddChannel() int {
	c.channels = append(c.channels, channel{})
	return len(c.channels) - 1
}

// Push gives a channel a request more.
func (c *Card) Push(now time.Duration, ch int, r Request) {
	c.now = max(c.now, now)
	k := &c.channels[ch]
	if k.dead {
		return
	}
	k.queue = append(k.queue, r)
	c.queued[r.Engine]++
	if len(k.queue) == 1 { // else the request follows the channel's own, which changes nothing
		c.dispatch()
	}
}

// Release raises a semaphore by one, as a processor of a guest does.
func (c *Card) Release(now time.Duration, semaphore int) {
	c.now = max(c.now, now)
	c.semaphores[semaphore-1]++
	c.dispatch()
}

// Queued is how many requests of a channel have not ended.
func (c *Card) Queued(ch int) int { return len(c.channels[ch].queue) }

// Stalled reports whether a channel waits for a semaphore.
func (c *Card) Stalled(ch int) bool {
	k := &c.channels[ch]
	return len(k.queue) > 0 && !c.passes(&k.queue[0])
}

// Running is the channel that an engine works for, -1 for none.
func (c *Card) Running(e int) int { return c.engines[e].channel }

// Busy is how long an engine has worked.
func (c *Card) Busy(e int) time.Duration {
	g := &c.engines[e]
	if g.channel >= 0 {
		return g.busy + c.now - g.began
	}
	return g.busy
}

func (c *Card) passes(r *Request) bool { return r.Wait == 0 || c.semaphores[r.Wait-1] >= r.Value }

// dispatch gives every idle engine the next channel's request.
func (c *Card) dispatch() {
	for e := range c.engines {
		g := &c.engines[e]
		if g.channel >= 0 || c.queued[e] == 0 {
			continue
		}
		ch := g.last
		for range c.channels {
			if ch++; ch >= len(c.channels) {
				ch = 0
			}
			k := &c.channels[ch]
			if k.paused || len(k.queue) == 0 || k.queue[0].Engine != e || !c.passes(&k.queue[0]) || c.atWork(ch) {
				continue
			}
			g.channel, g.last, g.began, g.end = ch, ch, c.now, c.now+k.queue[0].Busy
			if k.queue[0].Endless {
				g.end = never
			}
			break
		}
	}
}

// atWork reports whether an engine works for a channel: its requests are done in their
// order.
func (c *Card) atWork(ch int) bool {
	for e := range c.engines {
		if c.engines[e].channel == ch {
			return true
		}
	}
	return false
}

// Next is when something ends, never if nothing does.
func (c *Card) Next() time.Duration {
	t := never
	for e := range c.engines {
		if c.engines[e].channel >= 0 && !c.Unresponsive {
			t = min(t, c.engines[e].end)
		}
	}
	return t
}

// Step advances the time to now, at most that of Next, and returns the ended requests. The
// result is valid until the next call.
func (c *Card) Step(now time.Duration) []Completion {
	c.now = max(c.now, now)
	c.done = c.done[:0]
	for e := range c.engines {
		g := &c.engines[e]
		if g.channel < 0 || g.end > c.now || c.Unresponsive {
			continue
		}
		k := &c.channels[g.channel]
		r := k.queue[0]
		k.queue = k.queue[1:]
		c.queued[e]--
		if r.Signal > 0 {
			c.semaphores[r.Signal-1]++
		}
		c.done = append(c.done, Completion{g.channel, e, g.began, c.now, r.burst})
		c.leave(e)
	}
	c.dispatch()
	return c.done
}

// leave ends the work of an engine for its channel.
func (c *Card) leave(e int) {
	g := &c.engines[e]
	ran := c.now - g.began
	g.busy += ran
	c.channels[g.channel].used += ran
	g.channel, g.end = -1, never
}

// Pause lets no engine begin a request of a channel, and interrupts the one that runs if the card can.
func (c *Card) Pause(now time.Duration, ch int) {
	c.now = max(c.now, now)
	k := &c.channels[ch]
	k.paused = true
	for e := range c.engines {
		if g := &c.engines[e]; g.channel == ch && c.Interrupts {
			k.queue[0].Busy -= c.now - g.began
			c.leave(e)
		}
	}
	c.dispatch()
}

// Resume ends a pause.
func (c *Card) Resume(now time.Duration, ch int) {
	c.now = max(c.now, now)
	if k := &c.channels[ch]; k.paused {
		k.paused = false
		c.dispatch()
	}
}

// Off reports whether a paused channel has left the engines.
func (c *Card) Off(ch int) bool { return c.channels[ch].paused && !c.atWork(ch) }

// Used is how long engines have worked for a channel.
func (c *Card) Used(ch int) time.Duration {
	d := c.channels[ch].used
	for e := range c.engines {
		if g := &c.engines[e]; g.channel == ch {
			d += c.now - g.began
		}
	}
	return d
}

// Abort takes a channel off the card with all it has. It returns the engine that worked for it, -1 if
// none did.
func (c *Card) Abort(now time.Duration, ch int) (on int) {
	c.now = max(c.now, now)
	on = -1
	for e := range c.engines {
		if g := &c.engines[e]; g.channel == ch {
			on = e
			c.leave(e)
		}
	}
	k := &c.channels[ch]
	for _, r := range k.queue {
		c.queued[r.Engine]--
	}
	k.queue, k.dead = nil, true
	c.dispatch()
	return on
}
