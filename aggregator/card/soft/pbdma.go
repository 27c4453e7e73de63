package soft

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/fault"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// stepTime is when a step ends, except for the grain of work under way (see engine.Meter). It is
// not an option: stopping a channel, moving its pages and unmapping memory all wait for a step.
const stepTime = time.Millisecond / 2

// pbdma is one pushbuffer reader. ch and held are guarded by Card.mu.
type pbdma struct {
	card *Card
	id   int

	ch    *channel // being run
	held  *channel // waits for the acknowledgement of this PBDMA's interrupt
	lists int      // runlists since ch was to leave; guarded by Card.mu

	steps atomic.Uint64 // begun and ended: odd during a step
	until uint64        // the value of steps during the step that the driver's invalidate awaits; guarded by Card.mu

	run run // the step under way; the PBDMA's goroutine alone
}

func (p *pbdma) init(c *Card, id int) {
	p.card, p.id = c, id
	p.run.env = engine.Env{Mem: &p.run, Places: &p.run, Processors: c.processors, Now: c.now, Notify: p.run.notify, Stats: &c.stats.Engine, Launched: c.cfg.Launched, Ran: c.cfg.Ran, ProgramFault: p.run.programFault, Meter: engine.Meter{Clock: c.clock}}
}

func (p *pbdma) release() { p.held, p.card.fifo.Skip[p.id] = nil, false }

// verdict is how a step ended.
type verdict uint8

const (
	more      verdict = iota // the channel can continue immediately
	empty                    // everything fetched and executed
	blocked                  // a semaphore acquire failed
	yielded                  // the channel yields, or must wait
	held                     // channel.held waits for software
	contended                // step.stuck serves another channel
	stalled                  // step.stuck is trapped
	faulted                  // step.fault
)

// step is what one step caused; it is delivered under Card.mu after the step.
type step struct {
	verdict  verdict
	stuck    uint8  // the engine that it waits for
	flushed  bool   // the owner's translations were invalidated
	began    uint64 // by the card's clock
	unit     faultUnit
	fault    engine.Fault
	trap     trap
	said     string               // what a program did, in words
	broken   string               // why the card failed, a bug
	reason   *card.Fault          // why a channel of OpenChannel ends, nil if fault says it
	nonStall uint32               // engines with a non-stall event
	released bool                 // a semaphore was written: waiters may look again
	progress bool                 // a word was consumed
	busy     [gf100.Engines]int64 // ns
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
		s := c.turn(p, ch)
		c.fifo.giveBack(p, ch, s)
		p.run.stopClock()
		ch.charge(s)
	}
}

// turn runs steps of ch, for the time of a slice, and returns the last. It is called with Card.mu
// held, and releases it during each step. The channel is charged from here until it was given back:
// else turns of short steps cost others the card's time, and their owner nothing.
func (c *Card) turn(p *pbdma, ch *channel) *step {
	x := &p.run
	s := &x.step
	x.channel, x.since = ch, c.clock()
	end := x.since + uint64(c.cfg.Slice)
	for {
		ch.SawMem = c.fifo.memoryGen(ch.Owner)
		c.mu.Unlock()
		c.step(p, ch)
		if s.flushed {
			c.awaitSteps(ch.Owner)
		}
		if ch.direct != nil {
			ch.announce(s)
		}
		c.mu.Lock()
		c.deliver(ch, s)
		if s.verdict != more || ch.yield.Load() || x.since >= end {
			return s
		}
	}
}

// step runs ch for a bounded piece of work with the host's memory pinned.
func (c *Card) step(p *pbdma, ch *channel) {
	x := &p.run
	x.step = step{}
	x.env.Grid, x.env.Pages, x.env.Last = &ch.Grid, &ch.vm.pages, ch.kind.last
	if !c.stepping[ch.ID].TryRLock() {
		c.stepping[ch.ID].RLock()
		x.since = c.clock() // its guest does not pay for pages that the server moves
	}
	defer c.stepping[ch.ID].RUnlock()
	defer ch.save()
	c.owners[ch.Owner].RLock()
	defer c.owners[ch.Owner].RUnlock()
	if !c.attached { // detached since the turn began
		x.verdict = yielded
		return
	}
	if x.env.Native = nil; c.compiler != nil {
		x.env.Native = c.programsOf(ch.Owner)
	}
	p.steps.Add(1)
	defer p.steps.Add(1)
	x.serving, x.calling = -1, false
	x.stopClock()
	x.began = x.since
	defer c.noteStep(x)
	defer x.recoverFault()
	defer ch.vm.writes.report()
	x.env.Work = &c.stats.Owners[ch.Owner]
	x.env.Begin(x.since + uint64(stepTime))
	ch.vm.meter = &x.env.Meter
	ch.vm.sync()
	x.loop()
}

// noteStep ends the account of a step.
func (c *Card) noteStep(x *run) {
	x.stopClock()
	took := x.since - x.began
	for longest := c.stats.LongestStep.Load(); took > longest; longest = c.stats.LongestStep.Load() {
		c.stats.LongestStep.CompareAndSwap(longest, took)
	}
}

// recoverFault turns a memory fault of the process, or another panic, into a fault of the channel.
func (x *run) recoverFault() {
	p := recover()
	if p == nil {
		return
	}
	if why, known := p.(engine.Broken); known {
		x.broken = string(why)
	} else if _, memory := p.(interface{ Addr() uintptr }); !memory {
		x.broken = fault.Reason("a step of its channel", p)
	}
	unit := gf100.ClientHost
	if x.calling {
		unit = gf100.EngineClients[x.serving]
	}
	x.fail(unit, engine.Fault{VA: x.Seg.VA, Reason: uint8(shadowpt.PageNotPresent)})
}

// deliver makes a step's consequences visible. Card.mu is held.
func (c *Card) deliver(ch *channel, s *step) {
	if s.released {
		c.fifo.memoryChanged(ch.Owner)
	}
	ch.account(s)
	if c.fifo.channels[ch.ID] == ch && ch.direct == nil {
		c.fifo.Slots[ch.ID].Events |= s.nonStall
		c.fifo.broken[ch.ID] += s.broken // at most once: it has stopped
	}
	if ch.direct != nil {
		ch.show()
		if s.verdict == faulted && s.reason == nil {
			c.stats.MMUFaults.Add(1)
		}
		return
	}
	c.regs.EngineEvents(s.nonStall)
	if s.trap.due {
		c.raise(ch, s)
	}
	if s.verdict == faulted && !ch.dead.Load() {
		ch.programReport = s.said
		c.fifo.fault(ch, s.unit, s.fault)
	}
	if s.nonStall != 0 || s.trap.due || s.verdict == faulted {
		c.settle()
	}
}

// TakeEvents implements card.Registers.
func (c *Card) TakeEvents(events []card.ChannelEvent) []card.ChannelEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.fifo.Slots {
		if e, broken := &c.fifo.Slots[id].Events, &c.fifo.broken[id]; *e != 0 || *broken != "" {
			events = append(events, card.ChannelEvent{Channel: uint32(id), Engines: *e, Broken: *broken})
			*e, *broken = 0, ""
		}
	}
	return events
}

// hold raises the PBDMA's interrupt for the held method.
func (f *fifo) hold(p *pbdma, ch *channel) {
	ch.State = stateHeld
	ch.Holder = p.id
	p.release()
	p.held = ch
	h := &ch.Held
	f.card.regs.Hold(gf100.PBDMAError{
		PBDMA: uint8(p.id), Channel: ch.ID,
		Intr: h.Intr, Method: uint32(h.Subch)<<16 | uint32(h.Method), Data: h.Data,
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
	if f.Skip[i] {
		ch.Held = heldMethod{}
	}
	p.release()
	f.freed.Broadcast()
	ch.State = stateIdle
	f.schedule(int(ch.ID))
}

// run is a channel during a step, with the step's consequences so far.
type run struct {
	*channel
	step
	env     engine.Env
	has     uint8  // bits of the engines that the channel has during this turn
	serving int8   // engine of the last call of the step, or -1
	calling bool   // that call has not returned
	since   uint64 // time by the card's clock up to which the work is written down
	ended   bool   // the segment ends with the word just decoded
}

// loop works until the step's time is over or the channel cannot continue.
func (x *run) loop() {
	if x.channel.Held.Valid {
		x.replay()
	}
	if x.goesOn() && x.Host.Acquire.Pending && !x.tryAcquire() && x.verdict == more {
		x.verdict = blocked
	}
	for x.goesOn() {
		switch {
		case x.Pending >= 0:
			x.stepEngine()
		case x.Packet.Count == 0 && x.Seg.Words == 0:
			x.fetchEntry()
		default:
			x.consume()
		}
	}
}

// goesOn reports whether the step may do more.
func (x *run) goesOn() bool { return x.verdict == more && !x.env.Over() }

// Bytes implements engine.Memory.
func (x *run) Bytes(va uint64, n int, write bool) ([]byte, *engine.Fault) {
	x.env.Charge(engine.CostLookup)
	return x.vm.Bytes(va, n, write)
}

// fail ends the step with an MMU fault.
func (x *run) fail(u faultUnit, f engine.Fault) {
	x.verdict, x.unit, x.fault = faulted, u, f
}

// hold ends the step with a method that waits for software.
func (x *run) hold(h heldMethod) {
	if x.direct != nil {
		x.stop(heldFault(h))
		return
	}
	h.Valid = true
	x.channel.Held = h
	x.verdict = held
}

// replay retries a method: one that the driver acknowledged without skipping it, or one
// whose engine was trapped.
func (x *run) replay() {
	h := x.channel.Held
	x.channel.Held = heldMethod{}
	if h.Intr&^gf100.PBDMAIntrMethods != 0 {
		return // a bad word, entry or pointer; there is nothing to execute
	}
	x.method(h.Subch, h.Method, h.Data)
}
