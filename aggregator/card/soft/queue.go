package soft

import (
	"slices"
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

// After a failed look, its owner's channels pause for lookPause times the look's duration, so failed
// looks take at most 1/9 of the time while pauses are shorter than maxPause. That limits what a
// channel waits after its release: a look may have been long because the host did other things.
const (
	lookPause = 8
	maxPause  = lookPause * stepTime
)

// mayRun reports whether slot i has a channel that is allowed to run now.
func (f *fifo) mayRun(i int) bool {
	s, c := &f.Slots[i], f.card
	return f.channels[i] != nil && s.Enabled && s.Listed && c.powered() && (f.direct(i) ||
		c.regs.pfifoEnable.Get()&gf100.FIFOEnabled != 0 && c.regs.schedDisable.Get()&gf100.SchedRunlist == 0)
}

// schedule queues a channel if it may run and is idle or waiting. Its PBDMA finds out
// whether it has work.
func (f *fifo) schedule(i int) {
	if f.requeue(i) {
		f.changed()
	}
}

// requeue is schedule without a notice. It reports whether the channel was idle.
func (f *fifo) requeue(i int) bool {
	if !f.mayRun(i) {
		return false
	}
	switch ch := f.channels[i]; ch.State {
	case stateWaiting:
		f.look(ch)
	case stateIdle:
		if ch.Host.Acquire.Pending { // it was stopped while it waited
			f.setWaiting(ch)
			f.look(ch)
		} else {
			f.queue(ch)
		}
		return true
	case stateRunning:
		ch.DoorbellPending = true
	}
	return false
}

func (f *fifo) queue(ch *channel) {
	ch.State = stateReady
	f.Ready = append(f.Ready, ch.ID)
	f.work.Signal()
}

func (f *fifo) unqueue(ch *channel) {
	f.Ready = slices.DeleteFunc(f.Ready, func(id uint8) bool { return id == ch.ID })
	engines := ch.Has
	ch.Has = 0
	f.release(engines)
}

// suspend takes a channel that may not run any more off the queue, and asks it
// to leave if it runs.
func (f *fifo) suspend(ch *channel) {
	if ch == nil {
		return
	}
	switch ch.State {
	case stateReady:
		ch.State = stateIdle
		f.unqueue(ch)
	case stateContended:
		ch.State = stateIdle
		f.unawait(ch)
	case stateWaiting:
		f.waiting.Add(-1)
		ch.State = stateIdle
	case stateRunning:
		ch.yield.Store(true)
	}
	f.changed()
}

func (f *fifo) scheduleAll() {
	for i := range f.channels {
		if f.mayRun(i) {
			f.schedule(i)
		} else {
			f.suspend(f.channels[i])
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
		case len(f.Ready) == 0:
			f.work.Wait()
		default:
			return f.take(p)
		}
	}
	return nil
}

func (f *fifo) take(p *pbdma) *channel {
	ch := f.channels[f.Ready[0]]
	f.Ready = f.Ready[:copy(f.Ready, f.Ready[1:])]
	ch.State = stateRunning
	ch.DoorbellPending = false
	ch.yield.Store(false)
	ch.load()
	p.ch = ch
	p.run.has, ch.Has = ch.Has, 0
	f.card.regs.PBDMA[p.id].Channel.Put(uint32(ch.ID))
	return ch
}

// giveBack returns a channel in the state of its last step.
func (f *fifo) giveBack(p *pbdma, ch *channel, s *step) {
	p.ch, p.lists = nil, 0
	f.release(p.run.has)
	ch.Preempted = false
	ch.State = stateIdle
	if ch.dead.Load() {
		f.card.contexts.keep(ch)
	} else {
		f.park(p, ch, s)
	}
	f.completeRunlist()
	f.idle.Broadcast()
	goesOn := s.verdict == more || s.verdict == blocked && !s.progress // or only looked, and still waits
	if !goesOn || ch.yield.Load() {
		f.changed()
	}
}

func (f *fifo) park(p *pbdma, ch *channel, s *step) {
	e := ch.Kick
	ch.Kick = 0
	if e != 0 && s.verdict != faulted {
		f.kill(ch, e-1)
		return
	}
	switch s.verdict {
	case blocked:
		f.wait(ch, s)
	case held:
		f.hold(p, ch)
	case contended:
		f.await(ch, s.stuck)
	case stalled:
		f.stall(ch, s.stuck)
	case faulted:
		ch.State = stateFaulted
	case empty:
		if ch.DoorbellPending {
			f.schedule(int(ch.ID))
		}
	default:
		f.requeue(int(ch.ID))
	}
}

// wait parks a channel whose acquire failed.
func (f *fifo) wait(ch *channel, s *step) {
	if !f.mayRun(int(ch.ID)) {
		return
	}
	if s.progress {
		ch.Looks = 0
	} else {
		now, from := f.card.clock(), &f.lookFrom[ch.Owner]
		*from = min(max(*from, now)+lookPause*(now-s.began), now+uint64(maxPause))
	}
	if ch.Looks++; ch.Looks == 1 {
		f.retryAfter = retryMin
	}
	f.setWaiting(ch) // before memGen is read: memoryChanged takes them the other way round
	f.lookIn(f.retryAfter)
	if ch.DoorbellPending || ch.SawMem != f.memoryGen(ch.Owner) {
		f.look(ch) // something changed while it looked
	}
}

func (f *fifo) setWaiting(ch *channel) {
	f.waiting.Add(1)
	ch.State = stateWaiting
}

// look lets a waiting channel look again, when failed looks of its owner have taken no more than their
// part of the time: a guest whose channels wait for a value that another one of its channels does not
// release makes all of them look at each release.
func (f *fifo) look(ch *channel) {
	if pause := int64(f.lookFrom[ch.Owner] - f.card.clock()); pause > 0 {
		f.lookIn(time.Duration(pause))
		return
	}
	f.waiting.Add(-1)
	f.queue(ch)
}

// lookIn has all waiting channels look again after d, if they do not earlier.
func (f *fifo) lookIn(d time.Duration) {
	if at := f.card.clock() + uint64(d); !f.retryArmed || at < f.retryAt {
		f.retryArmed, f.retryAt = true, at
		f.retry.Reset(d)
	}
}

// memoryGen changes with each change of memory that a channel of an owner may see.
func (f *fifo) memoryGen(owner uint8) uint64 {
	return f.memGen[owner].Load() + f.memGen[anyOwner].Load()
}

// memoryChanged lets channels that wait for a semaphore look again after an access of an owner.
// Owners share no memory, and a look costs the time of the channel that looks. Card.mu is held.
func (f *fifo) memoryChanged(by uint8) {
	if f.noteChange(by) {
		f.wakeWaiting(by)
	}
}

// noteChange counts a change of memory, and reports whether a channel waits for one. It needs no
// lock.
func (f *fifo) noteChange(by uint8) bool {
	f.memGen[by].Add(1)
	return f.waiting.Load() != 0
}

func (f *fifo) wakeWaiting(by uint8) {
	for i := range f.channels {
		if ch := f.channels[i]; ch != nil && ch.State == stateWaiting && (by == anyOwner || by == ch.Owner) {
			f.look(ch)
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
	f.wakeWaiting(anyOwner)
}

// pollArea is where the doorbells are in BAR1.
func (f *fifo) pollArea() uint64 {
	return gf100.PollArea(f.card.regs.userdBase.Get())
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
	if f.channels[i] == nil {
		f.card.stats.UnboundDoorbells.Add(1)
		return
	}
	f.schedule(i)
}
