package soft

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// How long a failed semaphore acquire rests before it is looked at again
// without having been told of a change. Only memory that changes behind the
// card's back (a CPU write to system memory) needs the retry.
const (
	retryMin = 20 * time.Microsecond
	retryMax = 2 * time.Millisecond
)

// fifo is PFIFO: the channel table, the runlist and the queue of channels that
// have something to do. Guarded by Card.mu.
type fifo struct {
	card  *Card
	slots [gf100.Channels]slot
	ready []uint8 // numbers of channels in stateReady, in order

	work *sync.Cond // a channel became ready, or the card closes
	idle *sync.Cond // a PBDMA gave its channel back

	preempting *channel // asked to leave by NV_PFIFO_PREEMPT, and still running
	golden     golden

	waiting    int // channels in stateWaiting
	retry      *time.Timer
	retryAfter time.Duration
	busy       [gf100.PBDMAs]pbdma
}

// slot is an entry of the channel table.
type slot struct {
	bound   bool
	enabled bool
	listed  bool // in the committed runlist
	ch      *channel
}

func (f *fifo) init(c *Card) {
	f.card = c
	f.work = sync.NewCond(&c.mu)
	f.idle = sync.NewCond(&c.mu)
	f.retryAfter = retryMin
	f.retry = time.AfterFunc(time.Hour, f.retryFired)
	f.retry.Stop()
	for i := range f.busy {
		f.busy[i].init(c, i)
	}
}

func (f *fifo) reset() {
	f.slots = [gf100.Channels]slot{}
	f.ready = f.ready[:0]
	f.preempting = nil
	f.golden = golden{}
	f.waiting = 0
	for i := range f.busy {
		f.busy[i].held = nil
	}
}

// stopAll asks every running channel to leave, for good.
func (f *fifo) stopAll() {
	for i := range f.slots {
		f.drop(&f.slots[i])
	}
	f.ready = f.ready[:0]
}

func (f *fifo) running() bool {
	for i := range f.busy {
		if f.busy[i].ch != nil {
			return true
		}
	}
	return false
}

// bindFIFO binds the rows of PFIFO, PCCSR and PPBDMA.
func (c *Card) bindFIFO(b *mmio.Bindings) {
	f, r := &c.fifo, &c.regs
	b.OnRead("NV_PFIFO_INTR_0", func(int, uint32) uint32 { return r.pending() })
	b.OnWrite("NV_PFIFO_INTR_EN_0", func(int, mmio.Write) {})
	b.OnWrite("NV_PFIFO_ENABLE", func(int, mmio.Write) { f.scheduleAll() })
	b.OnWrite("NV_PFIFO_USERD_BASE", func(int, mmio.Write) {})
	b.OnWrite("NV_PFIFO_RUNLIST", func(_ int, w mmio.Write) { f.commitRunlist(w.New) })
	b.OnRead("NV_PFIFO_ENG_RUNLIST", func(_ int, v uint32) uint32 {
		if f.leaving() {
			v |= runlistPending
		}
		return v
	})
	b.OnWrite("NV_PFIFO_INTR_MMU_FAULT_ID", func(int, mmio.Write) {})
	b.OnRead("NV_PFIFO_INTR_PBDMA_ID", func(int, uint32) uint32 { return r.pbdmaPending() })
	b.OnRead("NV_PFIFO_ENG_EVENT", func(int, uint32) uint32 { return r.enginesPending() })
	b.OnWrite("NV_PFIFO_ENG_EVENT_STATUS", func(int, mmio.Write) {})
	// An engine's fault state ends with the channel that caused it, so there is
	// nothing left to clear.
	b.OnWrite("NV_PFIFO_ERROR_CLEAR", func(int, mmio.Write) {})
	b.OnWrite("NV_PFIFO_SCHED_DISABLE", func(int, mmio.Write) { f.scheduleAll() })
	b.On("NV_PFIFO_PREEMPT", mmio.Hooks{
		Read: func(_ int, v uint32) uint32 {
			v &^= preemptPending
			if f.preempting != nil {
				v |= preemptPending
			}
			return v
		},
		Write: func(_ int, w mmio.Write) { f.preempt(w.New & (gf100.Channels - 1)) },
	})
	b.OnRead("NV_PFIFO_ENGINE_STATUS", func(i int, _ uint32) uint32 { return c.engineStatus(i) })
	b.OnWrite("NV_PFIFO_INTR_RUNLIST", func(int, mmio.Write) {})
	b.OnWrite("NV_PFIFO_MMU_FAULT_TRIGGER", func(int, mmio.Write) {})
	b.OnWrite("NV_PCCSR_CHANNEL_INST", func(i int, w mmio.Write) { f.bind(i, w.New) })
	b.On("NV_PCCSR_CHANNEL", mmio.Hooks{
		Read: func(i int, v uint32) uint32 {
			v &^= channelBusy
			if ch := f.slots[i].ch; ch != nil && ch.state == stateRunning {
				v |= channelBusy
			}
			return v
		},
		Write: func(i int, w mmio.Write) { f.enable(i, w.New&channelEnable != 0) },
	})
	b.OnWrite("NV_PPBDMA_METHOD0", func(i int, w mmio.Write) { f.busy[i].skip = w.New&methodSkip != 0 })
	b.OnWrite("NV_PPBDMA_INTR_0", func(i int, w mmio.Write) { f.acknowledged(i) })
	b.OnWrite("NV_PPBDMA_INTR_EN_0", func(int, mmio.Write) {})
}

const (
	runlistPending = 1 << 20
	runlistDone    = 1 << 28 // in NV_PFIFO_INTR_RUNLIST
	preemptPending = 1 << 20
	channelBusy    = 1 << 28
	channelEnable  = 1 << 0
	methodSkip     = 1 << 31
	instBind       = 1 << 31
	instAddr       = 1<<28 - 1
	engineBusy     = 1 << 28
	schedRunlist   = 1 << 0 // the one runlist's bit in NV_PFIFO_SCHED_DISABLE
)

// engineStatus reads which channel an engine is executing.
func (c *Card) engineStatus(i int) uint32 {
	if user := c.engines[i].user.Load(); user != 0 {
		return engineBusy | uint32(user-1)
	}
	return 0
}

// bind acts on a write of NV_PCCSR_CHANNEL_INST: the channel starts from what
// its instance block says now.
func (f *fifo) bind(i int, v uint32) {
	s := &f.slots[i]
	f.drop(s)
	if v&instBind == 0 {
		return
	}
	inst := uint64(v&instAddr) << 12
	block := f.card.vram.slice(inst, gf100.InstanceSize)
	if block == nil {
		return
	}
	s.bound = true
	s.ch = newChannel(f.card, uint8(i), inst, block, &f.golden)
	f.schedule(i)
}

// drop ends a slot's channel. A PBDMA that still runs it throws it away when it
// comes back.
func (f *fifo) drop(s *slot) {
	ch := s.ch
	s.bound, s.ch = false, nil
	if ch == nil {
		return
	}
	ch.dead = true
	ch.yield.Store(true)
	switch ch.state {
	case stateWaiting:
		f.waiting--
	case stateReady:
		f.unqueue(ch.id)
	case stateHeld:
		f.busy[ch.holder].release()
	}
}

func (f *fifo) unqueue(id uint8) {
	for i, r := range f.ready {
		if r == id {
			f.ready = append(f.ready[:i], f.ready[i+1:]...)
			return
		}
	}
}

func (f *fifo) enable(i int, on bool) {
	s := &f.slots[i]
	s.enabled = on
	if !on {
		f.suspend(s)
		return
	}
	f.schedule(i)
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
		f.waiting--
		ch.state = stateIdle
	case stateRunning:
		ch.yield.Store(true)
	}
}

func (f *fifo) mayRun(i int) bool {
	s := &f.slots[i]
	return s.bound && s.enabled && s.listed && !f.card.closing &&
		f.card.regs.pfifoEnable.Get()&1 != 0 && f.card.regs.schedDisable.Get()&schedRunlist == 0
}

// schedule queues a channel if it may run and is not queued, running, held or
// faulted. Whether it has work is for its PBDMA to find out.
func (f *fifo) schedule(i int) {
	if !f.mayRun(i) {
		return
	}
	switch ch := f.slots[i].ch; ch.state {
	case stateWaiting:
		f.waiting--
		fallthrough
	case stateIdle:
		ch.state = stateReady
		f.ready = append(f.ready, ch.id)
		f.work.Signal()
	case stateRunning:
		ch.rung = true
	}
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

// bell looks for doorbells in a write of n bytes at off of BAR1.
func (f *fifo) bell(off uint64, n int) {
	base := uint64(f.card.regs.userdBase.Get()&instAddr) << 12
	if off+uint64(n) <= base || off >= base+gf100.Channels*gf100.USERDSize {
		return
	}
	in := off - base
	at := in % gf100.USERDSize
	if at > gf100.USERDGPPut+3 || at+uint64(n) <= gf100.USERDGPPut {
		return
	}
	f.card.stats.Doorbells.Add(1)
	i := int(in / gf100.USERDSize)
	if !f.slots[i].bound {
		f.card.stats.StrayBells.Add(1)
		return
	}
	f.schedule(i)
}

// commitRunlist acts on a write of NV_PFIFO_RUNLIST. Entries are read once;
// numbers of channels that do not exist are passed over.
func (f *fifo) commitRunlist(v uint32) {
	c := f.card
	c.stats.Runlists.Add(1)
	base := c.regs.runlistBase.Get()
	addr := uint64(base&instAddr) << 12
	count := min(int(v&0xfff), gf100.Channels)
	var listed [gf100.Channels]bool
	c.pinHost()
	if list := c.memory(shadowpt.Target(base>>28&3), addr, count*gf100.RunlistEntrySize, false); list != nil {
		for ; len(list) > 0; list = list[gf100.RunlistEntrySize:] {
			if id := binary.LittleEndian.Uint32(list); id < gf100.Channels {
				listed[id] = true
			}
		}
	}
	c.unpinHost()
	for i := range f.slots {
		f.slots[i].listed = listed[i]
	}
	f.scheduleAll()
	c.regs.runlistIntr.Set(runlistDone)
}

// leaving reports whether a channel that left the runlist still runs.
func (f *fifo) leaving() bool {
	for i := range f.busy {
		if ch := f.busy[i].ch; ch != nil && !ch.dead && !f.slots[ch.id].listed {
			return true
		}
	}
	return false
}

func (f *fifo) preempt(id uint32) {
	ch := f.slots[id].ch
	if ch != nil && ch.state == stateRunning {
		ch.yield.Store(true)
		f.preempting = ch
	}
}

// translationsCurrent reports whether every step under way began after the last
// invalidate.
func (f *fifo) translationsCurrent() bool {
	gen := f.card.tlbGen.Load()
	for i := range f.busy {
		if step := f.busy[i].stepGen.Load(); step != noStep && step < gen {
			return false
		}
	}
	return true
}

// memoryChanged lets channels that wait for a semaphore look again.
func (f *fifo) memoryChanged() {
	if f.waiting == 0 {
		return
	}
	f.retryAfter = retryMin
	f.wakeWaiting()
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
	if f.card.closing {
		return
	}
	f.retryAfter = min(f.retryAfter*2, retryMax)
	f.wakeWaiting()
}
