package soft

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Queued returns how many channels want a PBDMA.
func (c *Card) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fifo.Ready)
}

// Contended returns how many channels wait for an engine.
func (c *Card) Contended() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range c.fifo.Waiters {
		n += len(list)
	}
	return n
}

// SavedContexts returns how many states of unbound channels the card keeps.
func (c *Card) SavedContexts() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range c.contexts.Saved {
		n += len(list)
	}
	return n
}

// Check checks the scheduler's rules: each channel is in one list, that of its state, and
// no channel that could run and has work is missing.
func (c *Card) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.fifo
	places := map[*channel]int{}
	for i, id := range f.Ready {
		ch := f.channels[id]
		if ch == nil || ch.State != stateReady {
			return fmt.Errorf("place %d of the queue holds channel %d, which is not ready", i, id)
		}
		places[ch]++
	}
	for i := range f.busy {
		p := &f.busy[i]
		if p.ch != nil {
			if p.ch.State != stateRunning {
				return fmt.Errorf("PBDMA %d runs channel %d in state %d", i, p.ch.ID, p.ch.State)
			}
			places[p.ch]++
		}
		if p.held != nil {
			if p.held.State != stateHeld || p.held.Holder != i {
				return fmt.Errorf("PBDMA %d holds channel %d in state %d", i, p.held.ID, p.held.State)
			}
			places[p.held]++
		}
	}
	for e, list := range f.Waiters {
		for _, id := range list {
			ch := f.channels[id]
			if ch == nil || ch.State != stateContended || int(ch.Engine) != e || c.engines[e].user.Load() == 0 {
				return fmt.Errorf("engine %d is awaited by channel %d, which does not wait, or for nobody", e, id)
			}
			places[ch]++
		}
	}
	waiting := 0
	for i := range f.channels {
		ch := f.channels[i]
		if ch == nil {
			continue
		}
		if err := c.checkChannel(i, ch, places[ch]); err != nil {
			return err
		}
		if ch.State == stateWaiting {
			waiting++
		}
	}
	if n := int(f.waiting.Load()); waiting != n {
		return fmt.Errorf("%d channels wait, %d were counted", waiting, n)
	}
	if waiting > 0 && !f.retryArmed {
		return fmt.Errorf("%d channels wait without a retry", waiting)
	}
	if f.Updating && !f.leaving() {
		return fmt.Errorf("a runlist update is over and was not reported")
	}
	return nil
}

func (c *Card) checkChannel(i int, ch *channel, places int) error {
	want := 0
	switch ch.State {
	case stateReady, stateRunning, stateHeld, stateContended:
		want = 1
	case stateStalled:
		if !c.engines[ch.Engine].trapped.Load() {
			return fmt.Errorf("channel %d stands before engine %d, which runs", i, ch.Engine)
		}
	case stateIdle:
		put := binary.LittleEndian.Uint32(c.vram.slice(ch.USERD+gf100.USERDGPPut, 4))
		if c.fifo.mayRun(i) && (put != ch.GPGet || ch.Seg.Words != 0 || ch.Pending >= 0 || ch.Exec.Held.Valid || ch.Host.Acquire.Pending) {
			return fmt.Errorf("channel %d may run, has work, and is idle", i)
		}
	case stateWaiting:
		if !c.fifo.mayRun(i) {
			return fmt.Errorf("channel %d waits, and may not run", i)
		}
	}
	if ch.dead.Load() || int(ch.ID) != i || places != want {
		return fmt.Errorf("channel %d in state %d is in %d places", i, ch.State, places)
	}
	return nil
}

// StopRetries leaves channels that wait for a semaphore to notices of a change.
func (c *Card) StopRetries() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fifo.retry.Stop()
	c.fifo.retry = time.AfterFunc(time.Hour, func() {})
}

// DuringStep calls f while PBDMA 0, which must be idle, seems to be in a step that
// begins now.
func (c *Card) DuringStep(f func()) {
	p := &c.fifo.busy[0]
	p.steps.Add(1)
	defer p.steps.Add(1)
	f()
}
