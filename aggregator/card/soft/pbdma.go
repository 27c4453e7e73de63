package soft

import (
	"encoding/binary"
	"math"
	"runtime/debug"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

const (
	stepsPerTurn = 32   // then the next channel gets the PBDMA
	wordsPerStep = 1024 // pushbuffer words, at most, between two looks at yield
	noStep       = math.MaxUint64
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
	p.run.env = engine.Env{Now: c.now, Notify: p.run.notify, Stats: &c.stats.Engine}
}

func (p *pbdma) release() { p.held, p.skip = nil, false }

// verdict is how a step ended.
type verdict uint8

const (
	more    verdict = iota // the channel can go on at once
	empty                  // everything fetched and executed
	blocked                // a semaphore acquire failed
	yielded                // the channel asked to give way (YIELD)
	held                   // channel.held waits for software
	faulted                // step.fault
)

// step is what one step caused; it is delivered under Card.mu after the step.
type step struct {
	verdict  verdict
	fault    engine.Fault
	unit     faultUnit
	nonStall uint32 // engines with a non-stall event
	released bool   // a semaphore was written: waiters may look again
}

// runPBDMA takes ready channels, one after the other, until the card closes.
func (c *Card) runPBDMA(id int) {
	defer c.workers.Done()
	// Guest memory belongs to another process. If its file is cut short under
	// our mapping, the access must fail like one on a bus, not end the server.
	debug.SetPanicOnFault(true)
	p := &c.fifo.busy[id]
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		ch := c.fifo.next(p)
		if ch == nil {
			return
		}
		v := c.turn(p, ch)
		c.fifo.giveBack(p, ch, v)
	}
}

// next waits for a ready channel. A PBDMA that holds a channel for software
// takes no other: its registers describe the held method.
func (f *fifo) next(p *pbdma) *channel {
	for {
		if f.card.closing {
			return nil
		}
		if p.held == nil && len(f.ready) > 0 {
			ch := f.slots[f.ready[0]].ch
			f.ready = f.ready[:copy(f.ready, f.ready[1:])]
			ch.state = stateRunning
			ch.rung = false
			ch.yield.Store(false)
			p.ch = ch
			f.card.regs.pbdma[p.id].channel.Put(uint32(ch.id))
			return ch
		}
		f.work.Wait()
	}
}

// turn runs steps of ch. It is called with Card.mu held, and gives it up during
// each step.
func (c *Card) turn(p *pbdma, ch *channel) verdict {
	for range stepsPerTurn {
		c.mu.Unlock()
		s := c.step(p, ch)
		c.mu.Lock()
		c.deliver(ch, s)
		if s.verdict != more || ch.yield.Load() {
			return s.verdict
		}
	}
	return more
}

// step runs ch for a bounded piece of work with the host pinned.
func (c *Card) step(p *pbdma, ch *channel) *step {
	c.pinHost()
	defer c.unpinHost()
	p.stepGen.Store(c.tlbGen.Load())
	defer p.stepGen.Store(noStep)
	x := &p.run
	x.channel, x.step = ch, step{}
	x.env.Mem = &ch.vm
	defer x.recoverFault()
	ch.vm.sync()
	x.loop()
	return &x.step
}

// recoverFault turns a memory fault of the process into a fault of the channel.
// Any other panic is a bug and goes on up.
func (x *run) recoverFault() {
	r := recover()
	if r == nil {
		return
	}
	if _, ok := r.(interface{ Addr() uintptr }); !ok {
		panic(r)
	}
	if x.engine != nil {
		x.leave()
	}
	x.fail(unitHost, engine.Fault{VA: x.seg.va, Reason: uint8(shadowpt.PageNotPresent)})
}

// deliver makes a step's consequences visible. Card.mu is held.
func (c *Card) deliver(ch *channel, s *step) {
	if ch.dead {
		return
	}
	if s.nonStall != 0 {
		for e := range c.regs.engEvent {
			if s.nonStall>>e&1 != 0 {
				c.regs.engEvent[e].Set(1)
			}
		}
	}
	if s.verdict == faulted {
		c.stats.MMUFaults.Add(1)
		c.regs.mmuFault(s.unit, ch.inst, s.fault)
	}
	if s.released {
		c.fifo.memoryChanged()
	}
	if s.nonStall != 0 || s.verdict == faulted {
		c.settle()
	}
}

// giveBack puts a channel where its last step left it.
func (f *fifo) giveBack(p *pbdma, ch *channel, v verdict) {
	p.ch = nil
	if f.preempting == ch {
		f.preempting = nil
	}
	defer f.idle.Broadcast()
	if ch.dead {
		return
	}
	ch.save()
	rung := ch.rung
	switch v {
	case blocked:
		f.wait(ch)
	case held:
		f.hold(p, ch)
	case faulted:
		ch.state = stateFaulted
	default:
		ch.state = stateIdle
		if v != empty || rung {
			f.schedule(int(ch.id))
		}
	}
}

// wait parks a channel whose acquire failed.
func (f *fifo) wait(ch *channel) {
	ch.state = stateIdle
	if ch.rung || !f.mayRun(int(ch.id)) {
		// Something may have changed while it looked, or it may not run anyhow.
		f.schedule(int(ch.id))
		return
	}
	ch.state = stateWaiting
	f.waiting++
	f.retry.Reset(f.retryAfter)
}

// hold raises the PBDMA's interrupt for the held method.
func (f *fifo) hold(p *pbdma, ch *channel) {
	ch.state = stateHeld
	ch.holder = p.id
	p.held, p.skip = ch, false
	h := &ch.held
	r := &f.card.regs.pbdma[p.id]
	r.method.Put(uint32(h.subch)<<16 | uint32(h.method))
	r.data.Put(h.data)
	r.intr.Set(h.intr)
	f.card.stats.PBDMAErrors.Add(1)
	f.card.settle()
}

// acknowledged looks whether a PBDMA's interrupt is gone, and lets its channel
// go on. A held method that the driver did not mark as done is tried again.
func (f *fifo) acknowledged(i int) {
	p := &f.busy[i]
	ch := p.held
	if ch == nil || f.card.regs.pbdma[i].intr.Get() != 0 {
		return
	}
	if p.skip {
		ch.held = heldMethod{}
	}
	p.release()
	ch.state = stateIdle
	f.schedule(int(ch.id))
	f.work.Broadcast()
}

// run is a channel in a step, and what the step has caused so far.
type run struct {
	*channel
	step
	env    engine.Env
	engine *engineLock // taken for a call, or nil
	ended  bool        // the segment ends with the word just decoded
}

// loop does up to wordsPerStep words of work.
func (x *run) loop() {
	if x.held.valid {
		if v := x.replay(); v != more {
			x.verdict = v
			return
		}
	}
	if x.host.acquire.pending && !x.tryAcquire() {
		x.verdict = blocked
		return
	}
	if x.pending >= 0 {
		x.stepEngine()
		return
	}
	for budget := wordsPerStep; budget > 0 && x.verdict == more; {
		switch {
		case x.packet.count == 0 && x.seg.words == 0:
			x.fetchEntry()
			budget--
		default:
			n := x.consume(budget)
			budget -= max(n, 1)
		}
	}
}

// fetchEntry reads the next GPFIFO entry.
func (x *run) fetchEntry() {
	put, ok := x.readUSERD(gf100.USERDGPPut)
	if !ok {
		x.fail(unitHost, engine.Fault{VA: x.userd, Reason: uint8(shadowpt.PageNotPresent)})
		return
	}
	size := uint32(1) << x.ringLog2
	if put >= size || x.gpGet >= size {
		// Ignoring the pointer is all that hardware does with it; the driver
		// hears of it.
		x.writeUSERD(gf100.USERDGPPut, x.gpGet)
		x.hold(heldMethod{intr: gf100.PBDMAIntrGPPtr, data: put})
		return
	}
	if put == x.gpGet {
		x.verdict = empty
		return
	}
	b, fault := x.fetch(x.ring+uint64(x.gpGet)*gf100.GPEntrySize, gf100.GPEntrySize)
	if fault != nil {
		x.fail(unitHost, *fault)
		return
	}
	x.card.stats.GPEntries.Add(1)
	e := gf100.DecodeGPEntry(binary.LittleEndian.Uint64(b))
	x.gpGet = (x.gpGet + 1) & (size - 1)
	if e.Words == 0 {
		x.retired()
		if e.Opcode != gf100.GPOpNOP {
			x.hold(heldMethod{intr: gf100.PBDMAIntrGPFIFO, data: uint32(e.Opcode)})
		}
		return
	}
	if e.Level && !x.seg.level {
		x.mainGet = x.seg.va
	}
	x.seg = segment{va: e.VA, words: e.Words, level: e.Level}
}

// retired tells the driver how far the channel is, after each GPFIFO entry: the
// ring slot is free, and the segment's memory may be used again.
func (x *run) retired() {
	x.writeUSERD(gf100.USERDGPGet, x.gpGet)
	x.writeUSERD(gf100.USERDGet, uint32(x.seg.va))
	x.writeUSERD(gf100.USERDGetHi, uint32(x.seg.va>>32))
	top := x.seg.va
	if x.seg.level {
		top = x.mainGet
	}
	x.writeUSERD(gf100.USERDTopLevelGet, uint32(top))
	x.writeUSERD(gf100.USERDTopLevelGetHi, uint32(top>>32))
}

// fetch returns n bytes that must lie together, as ring entries and pushbuffer
// words do by their alignment.
func (x *run) fetch(va uint64, n int) ([]byte, *engine.Fault) {
	b, fault := x.vm.Bytes(va, n, false)
	if fault != nil {
		return nil, fault
	}
	if len(b) < n {
		return nil, x.vm.fail(va+uint64(len(b)), false, shadowpt.PageNotPresent)
	}
	return b, nil
}

// consume decodes up to budget words of the segment and returns how many it
// took.
func (x *run) consume(budget int) int {
	if x.seg.words == 0 { // the packet needs words that the segment does not have
		x.fetchEntry()
		return 0
	}
	n := min(int(x.seg.words), budget) * 4
	b, fault := x.vm.Bytes(x.seg.va, n, false)
	if fault != nil {
		x.fail(unitHost, *fault)
		return 0
	}
	if len(b) < 4 { // a word across two pages cannot be: addresses are aligned
		x.fail(unitHost, engine.Fault{VA: x.seg.va, Reason: uint8(shadowpt.PageNotPresent)})
		return 0
	}
	words := b[:len(b)&^3]
	taken := 0
	for x.ended = false; taken < len(words) && x.goesOn(); {
		taken += x.decode(words[taken:])
	}
	x.seg.va += uint64(taken)
	x.seg.words -= uint32(taken / 4)
	if x.ended {
		x.seg.words = 0
	}
	x.card.stats.Words.Add(uint64(taken / 4))
	if x.seg.words == 0 {
		x.retired()
	}
	return taken / 4
}

// goesOn reports whether the next word may be decoded now.
func (x *run) goesOn() bool {
	return x.verdict == more && x.pending < 0 && !x.host.acquire.pending && !x.ended
}

// decode takes one header, or data words of the packet under way, and returns
// the bytes taken.
func (x *run) decode(words []byte) int {
	if x.packet.count == 0 {
		x.header(binary.LittleEndian.Uint32(words))
		return 4
	}
	p := &x.packet
	if p.kind == gf100.HeaderNonIncreasing && len(words) > 4 && p.count > 1 {
		if n := x.inline(words[:min(len(words), int(p.count)*4)]); n > 0 {
			p.count -= uint16(n / 4)
			return n
		}
	}
	data := binary.LittleEndian.Uint32(words)
	method := p.method
	p.count--
	switch p.kind {
	case gf100.HeaderIncreasing:
		p.method += 4
	case gf100.HeaderIncreaseOnce:
		p.method += 4
		p.kind = gf100.HeaderNonIncreasing
	}
	x.method(p.subch, method&0x3ffc, data)
	return 4
}

func (x *run) header(w uint32) {
	h := gf100.DecodeHeader(w)
	switch h.Kind {
	case gf100.HeaderNOP:
	case gf100.HeaderImmediate:
		x.method(h.Subchannel, h.Method, uint32(h.Data))
	case gf100.HeaderSubDevMask:
		x.subDeviceMask(h)
	case gf100.HeaderEnd:
		x.ended = true
	case gf100.HeaderInvalid:
		x.hold(heldMethod{intr: gf100.PBDMAIntrPBEntry, data: w})
	default:
		x.packet = packet{kind: h.Kind, subch: h.Subchannel, method: h.Method, count: h.Count}
	}
}

func (x *run) subDeviceMask(h gf100.Header) {
	switch h.MaskOp {
	case gf100.MaskSet:
		x.subMask = h.Data
	case gf100.MaskStore:
		x.subKept = h.Data
	case gf100.MaskUse:
		x.subMask = x.subKept
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

func (x *run) readUSERD(off uint64) (uint32, bool) {
	b := x.card.vram.slice(x.userd+off, 4)
	if b == nil {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b), true
}

func (x *run) writeUSERD(off uint64, v uint32) {
	if b := x.card.vram.slice(x.userd+off, 4); b != nil {
		binary.LittleEndian.PutUint32(b, v)
	}
}
