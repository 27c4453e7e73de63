package soft

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// fifo is PFIFO: the channel table, the runlist and the queue of channels that
// have something to do. Guarded by Card.mu.
type fifo struct {
	card *Card
	FIFOState
	channels [gf100.Channels]*channel // nil while unbound
	busy     [gf100.PBDMAs]pbdma

	work  *sync.Cond // a channel became ready, or the card closes
	freed *sync.Cond // a PBDMA's held channel was unbound, or the card closes
	idle  *sync.Cond // a PBDMA gave its channel back

	waiting atomic.Int64        // channels in stateWaiting
	ended   []*card.Description // of opened channels that tellEnded tells

	broken     [gf100.Channels]string // why the card failed in a step of a channel, for TakeEvents
	retry      *time.Timer
	retryAfter time.Duration
	retryArmed bool
	retryAt    uint64                          // by the card's clock
	lookFrom   [gf100.Owners]uint64            // when channels of an owner may look again, by the card's clock
	memGen     [gf100.Owners + 1]atomic.Uint64 // count changes of memory that a semaphore may see, by owner
}

// FIFOState is what PFIFO knows besides its channels and registers.
type FIFOState struct {
	Slots    [gf100.Channels]Slot
	Ready    []uint8                // numbers of channels in stateReady, in order
	Waiters  [gf100.Engines][]uint8 // numbers of channels in stateContended, in order
	Updating bool                   // a runlist update is not complete
	Skip     [gf100.PBDMAs]bool     // the driver said that the method which a PBDMA holds is to be passed over
}

// Slot is what the channel table has of a number, bound or not.
type Slot struct {
	Enabled bool
	Listed  bool // in the committed runlist
	// Events are non-stall events that TakeEvents has not taken; bit n is engine n.
	Events uint32
}

func (f *fifo) init(c *Card) {
	f.card = c
	f.work = sync.NewCond(&c.mu)
	f.freed = sync.NewCond(&c.mu)
	f.idle = sync.NewCond(&c.mu)
	f.Ready = make([]uint8, 0, gf100.Channels)
	f.retryAfter = retryMin
	f.retry = time.AfterFunc(time.Hour, f.retryFired)
	f.retry.Stop()
	for i := range f.busy {
		f.busy[i].init(c, i)
	}
}

// stopAll unbinds every channel. Those that run leave at their next step.
func (f *fifo) stopAll() {
	for i := range f.channels {
		if f.direct(i) {
			f.ended = append(f.ended, f.channels[i].direct)
			f.unbind(i)
		}
	}
	f.stopBound()
}

// stopBound unbinds the channels of the registers.
func (f *fifo) stopBound() {
	for i := range f.channels {
		if !f.direct(i) {
			f.unbind(i)
		}
	}
	f.Updating = false
}

// unbind drops a channel, and forgets what the table has of its number.
func (f *fifo) unbind(i int) {
	f.drop(i)
	f.Slots[i] = Slot{}
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
			if f.preempting(uint8(v & (gf100.Channels - 1))) {
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
			if ch := f.channels[i]; ch != nil && ch.State != stateIdle {
				v |= gf100.ChannelPending
				switch ch.State {
				case stateRunning:
					v |= gf100.ChannelBusy
				case stateWaiting:
					v |= gf100.ChannelAcquire
				}
			}
			return v
		},
		Write: func(i int, w mmio.Write) {
			if !f.direct(i) {
				f.enable(i, w.New&gf100.ChannelEnabled != 0)
			}
		},
	})
	b.OnWrite("NV_PPBDMA_METHOD0", func(i int, w mmio.Write) { f.Skip[i] = w.New&gf100.PBDMAMethodSkip != 0 })
	b.OnWrite("NV_PPBDMA_INTR_0", func(i int, w mmio.Write) { f.acknowledged(i) })
}

// bind acts on a write of NV_PCCSR_CHANNEL_INST: the channel starts from the present
// instance block. A block that is not all in VRAM binds nothing.
func (f *fifo) bind(i int, v uint32) {
	if f.direct(i) {
		return
	}
	f.drop(i)
	if v&gf100.InstanceBound == 0 {
		return
	}
	inst := uint64(v&gf100.InstanceAddr) << 12
	block := f.card.vram.slice(inst, gf100.InstanceSize)
	if block == nil {
		return
	}
	ch := newChannel(f.card, uint8(i), inst, block)
	f.card.contexts.restore(ch, uint64(gf100.InstTokenHi.Get(block))<<32|uint64(gf100.InstTokenLo.Get(block)))
	ch.resumed()
	gf100.InstTokenLo.Put(block, uint32(ch.Token))
	gf100.InstTokenHi.Put(block, uint32(ch.Token>>32))
	f.channels[i] = ch
	f.schedule(i)
}

// drop unbinds a channel. A PBDMA that still runs it discards it after its step.
func (f *fifo) drop(i int) {
	ch := f.channels[i]
	f.channels[i], f.Slots[i].Events, f.broken[i] = nil, 0, ""
	if ch == nil {
		return
	}
	f.changed()
	ch.dead.Store(true)
	ch.yield.Store(true)
	switch ch.State {
	case stateRunning:
		return // its state is still changing
	case stateWaiting:
		f.waiting.Add(-1)
	case stateReady:
		f.unqueue(ch)
	case stateContended:
		f.unawait(ch)
	case stateHeld:
		f.busy[ch.Holder].release()
		f.freed.Broadcast()
	}
	f.card.contexts.keep(ch)
}

// direct reports whether slot i has a channel that the registers do not reach.
func (f *fifo) direct(i int) bool { return f.channels[i] != nil && f.channels[i].direct != nil }

// enable starts or stops a channel.
func (f *fifo) enable(i int, on bool) {
	f.Slots[i].Enabled = on
	f.changed()
	if on {
		f.schedule(i)
	} else {
		f.suspend(f.channels[i])
	}
}

// preempt asks a channel to leave its PBDMA, also one that was unbound since.
func (f *fifo) preempt(id uint8) {
	for i := range f.busy {
		if ch := f.busy[i].ch; ch != nil && ch.ID == id {
			ch.yield.Store(true)
			ch.Preempted = true
		}
	}
}

// preempting reports whether channel id was asked to leave and still runs.
func (f *fifo) preempting(id uint8) bool {
	for i := range f.busy {
		if ch := f.busy[i].ch; ch != nil && ch.Preempted && ch.ID == id {
			return true
		}
	}
	return false
}
