package soft

import (
	"math"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// The granularity of the card's work. It is not an option: stopping a channel, moving
// its pages and unmapping memory all wait for a step, and rely on this bound. Shares of
// card time are the scheduler's business.
const (
	stepsPerTurn = 32   // then the next channel gets the PBDMA
	wordsPerStep = 1024 // limit of pushbuffer words between two checks of yield
	// launchesPerStep and bytesPerStep bound what those words make the engines do;
	// the last launch may move engine.Budget more. While a step is under way its host
	// cannot unmap memory, and pages cannot move.
	launchesPerStep = 16
	bytesPerStep    = engine.Budget
	noStep          = math.MaxUint64
)

// pbdma is one pushbuffer reader. ch, held and skip are guarded by Card.mu.
type pbdma struct {
	card *Card
	id   int

	ch   *channel // being run
	held *channel // waits for the acknowledgement of this PBDMA's interrupt
	skip bool     // the driver said that the held method is to be passed over

	// stepGen is Card.tlbGen when the step under way began, or noStep.
	stepGen atomic.Uint64

	run run // the step under way; the PBDMA's goroutine alone
}

func (p *pbdma) init(c *Card, id int) {
	p.card, p.id = c, id
	p.stepGen.Store(noStep)
	p.run.pbdma = p
	p.run.env = engine.Env{Now: c.now, Notify: p.run.notify, Stats: &c.stats.Engine}
}

func (p *pbdma) release() { p.held, p.skip = nil, false }

// verdict is how a step ended.
type verdict uint8

const (
	more    verdict = iota // the channel can continue immediately
	empty                  // everything fetched and executed
	blocked                // a semaphore acquire failed
	yielded                // the channel yields, or must wait
	held                   // channel.held waits for software
	stalled                // step.stuck is trapped
	faulted                // step.fault
)

// step is what one step caused; it is delivered under Card.mu after the step.
type step struct {
	verdict  verdict
	stuck    uint8 // the trapped engine
	unit     faultUnit
	fault    engine.Fault
	trap     trap
	nonStall uint32 // engines with a non-stall event
	released bool   // a semaphore was written: waiters may look again
	progress bool   // a word was consumed
}

// runPBDMA takes ready channels, one after the other, until the card closes.
func (c *Card) runPBDMA(id int) {
	defer c.workers.Done()
	// Guest memory belongs to another process. If that truncates its file under our
	// mapping, the access must fail like one on a bus, not end the server.
	debug.SetPanicOnFault(true)
	p := &c.fifo.busy[id]
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		ch := c.fifo.next(p)
		if ch == nil {
			return
		}
		c.fifo.giveBack(p, ch, c.turn(p, ch))
	}
}

// turn runs steps of ch and returns the last. It is called with Card.mu held, and releases
// it during each step.
func (c *Card) turn(p *pbdma, ch *channel) *step {
	s := &p.run.step
	for range stepsPerTurn {
		ch.sawMem = c.fifo.memGen.Load()
		c.mu.Unlock()
		c.step(p, ch)
		c.mu.Lock()
		c.deliver(ch, s)
		if s.verdict != more || ch.yield.Load() {
			break
		}
	}
	return s
}

// step runs ch for a bounded piece of work with the host's memory pinned.
func (c *Card) step(p *pbdma, ch *channel) {
	x := &p.run
	x.channel, x.step = ch, step{}
	c.stepping[ch.id].RLock()
	defer c.stepping[ch.id].RUnlock()
	defer ch.save()
	c.hostMu.RLock()
	defer c.hostMu.RUnlock()
	if !c.attached { // detached since the turn began
		x.verdict = yielded
		return
	}
	p.stepGen.Store(c.tlbGen.Load())
	defer p.stepGen.Store(noStep)
	x.startClock()
	defer x.account()
	defer x.recoverFault()
	defer ch.vm.writes.report()
	x.env.Mem, x.env.Launches, x.env.Moved, x.env.Work = &ch.vm, 0, 0, &c.stats.Owners[ch.owner]
	ch.vm.sync()
	x.loop()
}

// recoverFault turns a memory fault of the process into a fault of the channel.
func (x *run) recoverFault() {
	if !card.MemoryFault(recover()) {
		return
	}
	unit := gf100.ClientHost
	if x.slot != nil {
		for e := range x.card.engines {
			if x.slot == &x.card.engines[e] {
				unit = gf100.EngineClients[e]
			}
		}
		x.leave()
	}
	x.fail(unit, engine.Fault{VA: x.seg.va, Reason: uint8(shadowpt.PageNotPresent)})
}

// deliver makes a step's consequences visible. Card.mu is held.
func (c *Card) deliver(ch *channel, s *step) {
	if s.released {
		c.fifo.memoryChanged()
	}
	c.regs.EngineEvents(s.nonStall)
	if s.trap.due {
		c.raise(ch, s)
	}
	if s.verdict == faulted && !ch.dead.Load() {
		c.fifo.fault(ch, s.unit, s.fault)
	}
	if s.nonStall != 0 || s.trap.due || s.verdict == faulted {
		c.settle()
	}
}

// hold raises the PBDMA's interrupt for the held method.
func (f *fifo) hold(p *pbdma, ch *channel) {
	ch.state = stateHeld
	ch.holder = p.id
	p.held, p.skip = ch, false
	h := &ch.held
	f.card.regs.Hold(gf100.PBDMAError{
		PBDMA: uint8(p.id), Channel: ch.id,
		Intr: h.intr, Method: uint32(h.subch)<<16 | uint32(h.method), Data: h.data,
	})
	f.card.stats.PBDMAErrors.Add(1)
	f.card.settle()
}

// acknowledged checks whether a PBDMA's interrupt was cleared, and resumes its channel. A
// held method that the driver did not mark as done is retried.
func (f *fifo) acknowledged(i int) {
	p := &f.busy[i]
	ch := p.held
	if ch == nil || f.card.regs.PBDMA[i].Intr.Get() != 0 {
		return
	}
	if p.skip {
		ch.held = heldMethod{}
	}
	p.release()
	f.freed.Broadcast()
	ch.state = stateIdle
	f.schedule(int(ch.id))
}

// run is a channel during a step, with the step's consequences so far.
type run struct {
	*channel
	step
	pbdma *pbdma
	env   engine.Env
	slot  *engineSlot // taken for a call, or nil
	since time.Time   // of the work that is not written down yet
	ended bool        // the segment ends with the word just decoded

}

// loop does up to wordsPerStep words of work, or what launchesPerStep of them
// launch, after what is left from before.
func (x *run) loop() {
	if x.flushGen != 0 {
		if !x.card.fifo.translationsCurrent(x.flushGen, x.pbdma) {
			x.verdict = yielded
			return
		}
		x.flushGen = 0
	}
	if x.channel.held.valid {
		if x.replay(); x.verdict != more {
			return
		}
	}
	if x.host.acquire.pending && !x.tryAcquire() {
		if x.verdict == more {
			x.verdict = blocked
		}
		return
	}
	if x.pending >= 0 {
		x.stepEngine()
		return
	}
	for budget := wordsPerStep; budget > 0 && x.goesOn(); {
		if x.packet.count == 0 && x.seg.words == 0 {
			x.fetchEntry()
			budget--
		} else {
			budget -= max(x.consume(budget), 1)
		}
	}
}

// fail ends the step with an MMU fault.
func (x *run) fail(u faultUnit, f engine.Fault) {
	x.verdict, x.unit, x.fault = faulted, u, f
}

// hold ends the step with a method that waits for software.
func (x *run) hold(h heldMethod) {
	h.valid = true
	x.channel.held = h
	x.verdict = held
}

// replay retries a method: one that the driver acknowledged without skipping it, or one
// whose engine was trapped.
func (x *run) replay() {
	h := x.channel.held
	x.channel.held = heldMethod{}
	if h.intr&^gf100.PBDMAIntrMethods != 0 {
		return // a bad word, entry or pointer; there is nothing to execute
	}
	x.method(h.subch, h.method, h.data)
}
