package soft

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// fifo is PFIFO: the channel table, the runlist and the queue of channels that
// have something to do. Guarded by Card.mu.
type fifo struct {
	card  *Card
	slots [gf100.Channels]slot
	ready []uint8 // numbers of channels in stateReady, in order
	busy  [gf100.PBDMAs]pbdma

	work  *sync.Cond // a channel became ready, or the card closes
	freed *sync.Cond // a PBDMA's held channel was unbound, or the card closes
	idle  *sync.Cond // a PBDMA gave its channel back

	updating bool // a runlist update is not complete

	waiting    atomic.Int64 // channels in stateWaiting
	retry      *time.Timer
	retryAfter time.Duration
	retryArmed bool
	memGen     atomic.Uint64 // counts changes of memory that a semaphore may see
}

// slot is an entry of the channel table.
type slot struct {
	enabled bool
	listed  bool     // in the committed runlist
	ch      *channel // nil while unbound
}

func (f *fifo) init(c *Card) {
	f.card = c
	f.work = sync.NewCond(&c.mu)
	f.freed = sync.NewCond(&c.mu)
	f.idle = sync.NewCond(&c.mu)
	f.ready = make([]uint8, 0, gf100.Channels)
	f.retryAfter = retryMin
	f.retry = time.AfterFunc(time.Hour, f.retryFired)
	f.retry.Stop()
	for i := range f.busy {
		f.busy[i].init(c, i)
	}
}

// stopAll unbinds every channel. Those that run leave at their next step.
func (f *fifo) stopAll() {
	for i := range f.slots {
		f.drop(&f.slots[i])
		f.slots[i] = slot{}
	}
	f.updating = false
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
	f := &c.fifo
	c.regs.Bind(b)
	b.OnWrite("NV_PFIFO_ENABLE", func(int, mmio.Write) { f.scheduleAll() })
	b.OnWrite("NV_PFIFO_USERD_BASE", stored)
	b.OnWrite("NV_PFIFO_RUNLIST", func(_ int, w mmio.Write) { f.commitRunlist(w.New) })
	b.OnRead("NV_PFIFO_ENG_RUNLIST", func(_ int, v uint32) uint32 {
		if f.leaving() {
			v |= gf100.RunlistPending
		}
		return v
	})
	b.OnWrite("NV_PFIFO_INTR_MMU_FAULT_ID", func(int, mmio.Write) { f.reportFaults() })
	b.OnWrite("NV_PFIFO_SCHED_DISABLE", func(int, mmio.Write) { f.scheduleAll() })
	b.On("NV_PFIFO_PREEMPT", mmio.Hooks{
		Read: func(_ int, v uint32) uint32 {
			v &^= gf100.PreemptPending
			if f.preempting() {
				v |= gf100.PreemptPending
			}
			return v
		},
		Write: func(_ int, w mmio.Write) { f.preempt(uint8(w.New & (gf100.Channels - 1))) },
	})
	b.OnRead("NV_PFIFO_ENGINE_STATUS", func(i int, _ uint32) uint32 { return c.engines[i].status() })
	b.OnWrite("NV_PFIFO_MMU_FAULT_TRIGGER", func(i int, w mmio.Write) {
		if w.Data&gf100.FaultTrigger != 0 {
			f.triggerFault(uint8(i))
		}
	})
	b.OnWrite("NV_PCCSR_CHANNEL_INST", func(i int, w mmio.Write) { f.bind(i, w.New) })
	b.On("NV_PCCSR_CHANNEL", mmio.Hooks{
		Read: func(i int, v uint32) uint32 {
			v &^= gf100.ChannelBusy | gf100.ChannelStatus
			if ch := f.slots[i].ch; ch != nil && ch.state != stateIdle {
				v |= gf100.ChannelPending
				if ch.state == stateRunning {
					v |= gf100.ChannelBusy
				}
			}
			return v
		},
		Write: func(i int, w mmio.Write) { f.enable(i, w.New&gf100.ChannelEnabled != 0) },
	})
	b.OnWrite("NV_PPBDMA_METHOD0", func(i int, w mmio.Write) { f.busy[i].skip = w.New&gf100.PBDMAMethodSkip != 0 })
	b.OnWrite("NV_PPBDMA_INTR_0", func(i int, w mmio.Write) { f.acknowledged(i) })
}

// bind acts on a write of NV_PCCSR_CHANNEL_INST: the channel starts from the present
// instance block. A block that is not all in VRAM binds nothing.
func (f *fifo) bind(i int, v uint32) {
	s := &f.slots[i]
	f.drop(s)
	if v&gf100.InstanceBound == 0 {
		return
	}
	inst := uint64(v&gf100.InstanceAddr) << 12
	block := f.card.vram.slice(inst, gf100.InstanceSize)
	if block == nil {
		return
	}
	s.ch = newChannel(f.card, uint8(i), inst, block)
	f.card.contexts.restore(s.ch, block)
	s.ch.resumed()
	f.card.contexts.name(s.ch, block)
	f.schedule(i)
}

// drop unbinds a slot's channel. A PBDMA that still runs it discards it after its step.
func (f *fifo) drop(s *slot) {
	ch := s.ch
	s.ch = nil
	if ch == nil {
		return
	}
	ch.dead.Store(true)
	ch.yield.Store(true)
	switch ch.state {
	case stateRunning:
		return // its state is still changing
	case stateWaiting:
		f.waiting.Add(-1)
	case stateReady:
		f.unqueue(ch.id)
	case stateHeld:
		f.busy[ch.holder].release()
		f.freed.Broadcast()
	}
	f.card.contexts.keep(ch)
}

// enable starts or stops a channel.
func (f *fifo) enable(i int, on bool) {
	f.slots[i].enabled = on
	f.changed()
	if on {
		f.schedule(i)
	} else {
		f.suspend(&f.slots[i])
	}
}

// preempt asks a channel to leave its PBDMA, also one that was unbound since.
func (f *fifo) preempt(id uint8) {
	for i := range f.busy {
		if ch := f.busy[i].ch; ch != nil && ch.id == id {
			ch.yield.Store(true)
			ch.preempted = true
		}
	}
}

// preempting reports whether any channel that was asked to leave still runs.
func (f *fifo) preempting() bool {
	for i := range f.busy {
		if ch := f.busy[i].ch; ch != nil && ch.preempted {
			return true
		}
	}
	return false
}

// translationsCurrent reports whether every step under way, but for the one of
// PBDMA except, began after invalidate gen.
func (f *fifo) translationsCurrent(gen uint64, except *pbdma) bool {
	for i := range f.busy {
		p := &f.busy[i]
		if step := p.stepGen.Load(); p != except && step != noStep && step < gen {
			return false
		}
	}
	return true
}
