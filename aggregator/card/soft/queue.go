package soft

import (
	"time"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// The delays before a failed semaphore acquire is polled again without a notice of a
// change. Only memory that changes without the card (a CPU write to system memory) needs
// the retry.
const (
	retryMin = 20 * time.Microsecond
	retryMax = 2 * time.Millisecond
)

// mayRun reports whether slot i has a channel that is allowed to run now.
func (f *fifo) mayRun(i int) bool {
	s, c := &f.slots[i], f.card
	return s.ch != nil && s.enabled && s.listed && c.powered() &&
		c.regs.pfifoEnable.Get()&gf100.FIFOEnabled != 0 && c.regs.schedDisable.Get()&gf100.SchedRunlist == 0
}

// schedule queues a channel if it may run and is idle or waiting. Its PBDMA finds out
// whether it has work.
func (f *fifo) schedule(i int) {
	if !f.mayRun(i) {
		return
	}
	switch ch := f.slots[i].ch; ch.state {
	case stateWaiting:
		f.waiting.Add(-1)
		f.queue(ch)
	case stateIdle:
		f.queue(ch)
	case stateRunning:
		ch.doorbellPending = true
	}
}

func (f *fifo) queue(ch *channel) {
	ch.state = stateReady
	f.ready = append(f.ready, ch.id)
	f.work.Signal()
	f.changed()
}

func (f *fifo) unqueue(id uint8) {
	for i, r := range f.ready {
		if r == id {
			f.ready = append(f.ready[:i], f.ready[i+1:]...)
			return
		}
	}
}

// suspend takes a channel that may not run any more off the queue, and asks it
// to leave if it runs.
func (f *fifo) suspend(s *slot) {
	ch := s.ch
	if ch == nil {
		return
	}
	switch ch.state {
	case stateReady:
		f.unqueue(ch.id)
		ch.state = stateIdle
	case stateWaiting:
		f.waiting.Add(-1)
		ch.state = stateIdle
	case stateRunning:
		ch.yield.Store(true)
	}
	f.changed()
}

func (f *fifo) scheduleAll() {
	for i := range f.slots {
		if f.mayRun(i) {
			f.schedule(i)
		} else {
			f.suspend(&f.slots[i])
		}
	}
}

// next waits for a ready channel. A PBDMA that holds a channel for software
// takes no other: its registers describe the held method. PBDMAs that cannot
// take a channel wait apart, so that no signal is spent on them.
func (f *fifo) next(p *pbdma) *channel {
	for !f.card.closing {
		switch {
		case p.held != nil:
			f.freed.Wait()
		case len(f.ready) == 0:
			f.work.Wait()
		default:
			return f.take(p)
		}
	}
	return nil
}

func (f *fifo) take(p *pbdma) *channel {
	ch := f.slots[f.ready[0]].ch
	f.ready = f.ready[:copy(f.ready, f.ready[1:])]
	ch.state = stateRunning
	ch.doorbellPending = false
	ch.yield.Store(false)
	ch.load()
	p.ch = ch
	f.card.regs.PBDMA[p.id].Channel.Put(uint32(ch.id))
	return ch
}

// giveBack returns a channel in the state of its last step.
func (f *fifo) giveBack(p *pbdma, ch *channel, s *step) {
	p.ch = nil
	ch.preempted = false
	ch.state = stateIdle
	if ch.dead.Load() {
		f.card.contexts.keep(ch)
	} else {
		f.park(p, ch, s)
	}
	f.completeRunlist()
	f.idle.Broadcast()
	f.changed()
}

func (f *fifo) park(p *pbdma, ch *channel, s *step) {
	if e := ch.kick.Swap(0); e != 0 && s.verdict != faulted {
		f.kill(ch, uint8(e-1))
		return
	}
	switch s.verdict {
	case blocked:
		f.wait(ch, s.progress)
	case held:
		f.hold(p, ch)
	case stalled:
		f.stall(ch, s.stuck)
	case faulted:
		ch.state = stateFaulted
	case empty:
		if ch.doorbellPending {
			f.schedule(int(ch.id))
		}
	default:
		f.schedule(int(ch.id))
	}
}

// wait parks a channel whose acquire failed.
func (f *fifo) wait(ch *channel, fresh bool) {
	i := int(ch.id)
	f.waiting.Add(1) // before memGen is read: memoryChanged takes them the other way round
	if ch.doorbellPending || ch.sawMem != f.memGen.Load() {
		f.waiting.Add(-1)
		f.schedule(i) // something changed while it looked
		return
	}
	if !f.mayRun(i) {
		f.waiting.Add(-1)
		return
	}
	if fresh {
		ch.looks = 0
	}
	ch.looks++
	ch.state = stateWaiting
	if ch.looks == 1 {
		f.retryAfter = retryMin
	}
	if !f.retryArmed || ch.looks == 1 {
		f.retryArmed = true
		f.retry.Reset(f.retryAfter)
	}
}

// memoryChanged lets channels that wait for a semaphore look again. Card.mu is held.
func (f *fifo) memoryChanged() {
	if f.noteChange() {
		f.wakeWaiting()
	}
}

// noteChange counts a change of memory, and reports whether a channel waits for one. It needs no
// lock.
func (f *fifo) noteChange() bool {
	f.memGen.Add(1)
	return f.waiting.Load() != 0
}

func (f *fifo) wakeWaiting() {
	for i := range f.slots {
		if ch := f.slots[i].ch; ch != nil && ch.state == stateWaiting {
			f.schedule(i)
		}
	}
}

func (f *fifo) retryFired() {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	f.retryArmed = false
	if f.card.closing || f.waiting.Load() == 0 {
		return
	}
	f.retryAfter = min(f.retryAfter*2, retryMax)
	f.wakeWaiting()
}

// pollArea is where the doorbells are in BAR1.
func (f *fifo) pollArea() uint64 {
	return uint64(f.card.regs.userdBase.Get()&gf100.InstanceAddr) << 12
}

// inPollArea reports whether some of n bytes at off of BAR1 are in the poll area.
func (f *fifo) inPollArea(off uint64, n int) bool {
	base := f.pollArea()
	return off+uint64(n) > base && off < base+gf100.PollSize
}

// doorbell looks for doorbells in a write of n bytes at off of BAR1.
func (f *fifo) doorbell(off uint64, n int) {
	if !f.inPollArea(off, n) {
		return
	}
	base, end := f.pollArea(), off+uint64(n)
	first := max(off, base) - base
	for i := first / gf100.USERDSize; i < gf100.Channels; i++ {
		put := base + i*gf100.USERDSize + gf100.USERDGPPut
		if put >= end {
			return
		}
		if off < put+4 {
			f.ring(int(i))
		}
	}
}

func (f *fifo) ring(i int) {
	f.card.stats.Doorbells.Add(1)
	if f.slots[i].ch == nil {
		f.card.stats.UnboundDoorbells.Add(1)
		return
	}
	f.schedule(i)
}
