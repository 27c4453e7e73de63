package soft

import (
	"encoding/binary"
	"fmt"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Queued returns how many channels want a PBDMA.
func (c *Card) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fifo.ready)
}

// DuringStep calls f while PBDMA 0, which must be idle, seems to be in a step that
// begins now.
func (c *Card) DuringStep(f func()) {
	p := &c.fifo.busy[0]
	p.stepGen.Store(c.tlbGen.Load())
	defer p.stepGen.Store(noStep)
	f()
}

// ChannelInvalidate is a channel's MEM_OP_B.
func (c *Card) ChannelInvalidate() { c.invalidate(everyDirectory) }

// Check checks the scheduler's rules: each channel is in one list, that of its state, and
// no channel that could run and has work is missing.
func (c *Card) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.fifo
	places := map[*channel]int{}
	for i, id := range f.ready {
		ch := f.slots[id].ch
		if ch == nil || ch.state != stateReady {
			return fmt.Errorf("place %d of the queue holds channel %d, which is not ready", i, id)
		}
		places[ch]++
	}
	for i := range f.busy {
		p := &f.busy[i]
		if p.ch != nil {
			if p.ch.state != stateRunning {
				return fmt.Errorf("PBDMA %d runs channel %d in state %d", i, p.ch.id, p.ch.state)
			}
			places[p.ch]++
		}
		if p.held != nil {
			if p.held.state != stateHeld || p.held.holder != i {
				return fmt.Errorf("PBDMA %d holds channel %d in state %d", i, p.held.id, p.held.state)
			}
			places[p.held]++
		}
	}
	waiting := 0
	for i := range f.slots {
		ch := f.slots[i].ch
		if ch == nil {
			continue
		}
		if err := c.checkChannel(i, ch, places[ch]); err != nil {
			return err
		}
		if ch.state == stateWaiting {
			waiting++
		}
	}
	if n := int(f.waiting.Load()); waiting != n {
		return fmt.Errorf("%d channels wait, %d were counted", waiting, n)
	}
	if waiting > 0 && !f.retryArmed {
		return fmt.Errorf("%d channels wait without a retry", waiting)
	}
	if f.updating && !f.leaving() {
		return fmt.Errorf("a runlist update is over and was not reported")
	}
	return nil
}

func (c *Card) checkChannel(i int, ch *channel, places int) error {
	want := 0
	switch ch.state {
	case stateReady, stateRunning, stateHeld:
		want = 1
	case stateStalled:
		if !c.engines[ch.engine].trapped.Load() {
			return fmt.Errorf("channel %d stands before engine %d, which runs", i, ch.engine)
		}
	case stateIdle:
		put := binary.LittleEndian.Uint32(c.vram.slice(ch.userd+gf100.USERDGPPut, 4))
		if c.fifo.mayRun(i) && (put != ch.gpGet || ch.seg.words != 0 || ch.pending >= 0 || ch.exec.held.valid || ch.host.acquire.pending) {
			return fmt.Errorf("channel %d may run, has work, and is idle", i)
		}
	case stateWaiting:
		if !c.fifo.mayRun(i) {
			return fmt.Errorf("channel %d waits, and may not run", i)
		}
	}
	if ch.dead.Load() || int(ch.id) != i || places != want {
		return fmt.Errorf("channel %d in state %d is in %d places", i, ch.state, places)
	}
	return nil
}
