package cards

import (
	"encoding/binary"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

var le = binary.LittleEndian

// channel is a channel of a Direct. It implements card.Channel, and engine.Memory as its engines
// see it. Its lock is the card's.
type channel struct {
	*share
	cfg card.ChannelConfig
	ev  card.ChannelEvents
	id  uint8

	enabled, committed, faulted bool
	holds                       int // reasons why it may not run although it is enabled

	put, get uint32
	progress card.Progress
	va       uint64 // of the next word of the segment
	words    uint32 // left in the segment
	packet   gf100.Header
	acquire  uint32 // operation that waits, or 0
	busy     int    // engine with work left, or -1

	semaphore [3]uint32
	objects   [8]object // by subchannel
	gr        engine.GR
	ce        [gf100.CEs]engine.CE
	env       engine.Env
	tlb       shadowpt.TLB
}

// object is a class bound to a subchannel.
type object struct {
	class  uint16
	engine int
	bound  bool
}

func (s *share) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	defer s.d.lock()()
	left, live := len(s.d.channels), make(map[*share]int)
	for _, ch := range s.d.channels {
		if ch != nil {
			left--
			live[ch.share]++
		}
	}
	for _, o := range s.d.shares {
		if o != s {
			left -= max(o.cfg.Guaranteed-live[o], 0)
		}
	}
	if left <= 0 && live[s] >= s.cfg.Guaranteed {
		return nil, card.ErrChannels
	}
	ch := &channel{
		share: s, cfg: c, ev: ev, id: uint8(slices.Index(s.d.channels[:], nil)),
		holds: 1, busy: -1, put: c.Put, get: c.State.GPGet, progress: c.Progress,
	}
	ch.env = engine.Env{Mem: ch, Now: s.d.Time, Notify: func(engine.Event) { ch.completed(gf100.EngineGR) }, Stats: &s.d.stats, Meter: engine.Meter{Clock: s.d.Time}}
	ch.tlb.Bind(shadowpt.Space{Dir: c.Dir, Target: shadowpt.VRAM, Limit: c.Limit})
	s.d.channels[ch.id] = ch
	return ch, nil
}

func (ch *channel) ID() uint8       { return ch.id }
func (ch *channel) USERD() card.Run { return card.Run{} }
func (ch *channel) Enable()         { ch.enable(true) }
func (ch *channel) Disable()        { ch.enable(false) }
func (ch *channel) Running() bool   { return false } // no step is under way
func (ch *channel) Unbind()         {}

func (ch *channel) enable(on bool) {
	defer ch.d.lock()()
	ch.enabled = on
	ch.d.ring()
}

func (ch *channel) Doorbell(put uint32) {
	defer ch.d.lock()()
	ch.put = put
	ch.d.ring()
}

func (ch *channel) Quiet() bool {
	defer ch.d.lock()()
	return !ch.hasWork()
}

func (ch *channel) Progress() card.Progress {
	defer ch.d.lock()()
	return ch.progress
}

func (ch *channel) State() card.State {
	defer ch.d.lock()()
	return card.State{GPGet: ch.get, Ref: ch.progress.Ref}
}

func (ch *channel) Stop(bool) (left, inTime bool) {
	defer ch.d.lock()()
	ch.committed = true // too late for Commit
	ch.holds++
	return true, true
}

func (ch *channel) Free() {
	defer ch.d.lock()()
	ch.d.channels[ch.id] = nil
}

func (ch *channel) Bytes(va uint64, n int, write bool) ([]byte, *engine.Fault) {
	ch.env.Charge(engine.CostLookup)
	pte, end, reason, ok := ch.tlb.Lookup(ch.share, va)
	n = min(n, int(end-va))
	var mem []byte
	switch {
	case !ok:
	case pte.Supervisor:
		reason = shadowpt.PageSystemOnly
	case write && pte.ReadOnly:
		reason = shadowpt.PageReadOnly
	default:
		if ch.d.cfg.Watch != nil {
			ch.d.cfg.Watch(ch.id, pte.Target, pte.Addr, n, write)
		}
		reason, mem = shadowpt.PageNotPresent, ch.d.memory(pte.Target, pte.Addr, n, write)
	}
	if mem == nil {
		return nil, &engine.Fault{VA: va, Write: write, Reason: uint8(reason)}
	}
	return mem, nil
}

// at returns the n bytes at va, which lie in one page. If it returns nil the channel has
// faulted.
func (ch *channel) at(va uint64, n int, write bool) []byte {
	b, f := ch.Bytes(va, n, write)
	if f == nil && len(b) < n {
		f = &engine.Fault{VA: va, Write: write, Reason: uint8(shadowpt.PageNotPresent)}
	}
	if f != nil {
		ch.fault(gf100.ClientHost, *f)
		return nil
	}
	return b
}

func (ch *channel) report(tell func(card.ChannelEvents)) {
	ch.holds++
	ch.d.events = append(ch.d.events, event{ch, tell})
}

func (ch *channel) fault(c gf100.MMUClient, f engine.Fault) {
	ch.faulted = true
	ch.report(func(ev card.ChannelEvents) { ev.MMUFault(c.Fault(0, f.VA, f.Write, f.Reason)) })
}

func (ch *channel) refuse(intr, method, data uint32) {
	ch.enabled = false
	ch.report(func(ev card.ChannelEvents) { ev.PBDMAError(gf100.PBDMAError{Intr: intr, Method: method, Data: data}) })
}

func (ch *channel) completed(engine int) {
	ch.report(func(ev card.ChannelEvents) { ev.Completed(1 << engine) })
}

// hasWork reports whether an enabled channel has work, although it may wait or be held.
func (ch *channel) hasWork() bool {
	return ch.enabled && !ch.faulted && (ch.put != ch.get || ch.words > 0 || ch.acquire != 0 || ch.busy >= 0)
}

// advance does the next thing of a channel that has work. It returns false if nothing can be
// done until memory changes.
func (ch *channel) advance() bool {
	switch {
	case ch.acquire != 0:
		return ch.tryAcquire()
	case ch.busy == gf100.EngineGR:
		return ch.outcome(ch.busy, ch.gr.Step(&ch.env), &ch.gr.Fault)
	case ch.busy >= 0:
		ce := &ch.ce[ch.busy-gf100.EngineCE0]
		return ch.outcome(ch.busy, ce.Step(&ch.env), &ce.Fault)
	case ch.words > 0:
		if b := ch.at(ch.va, 4, false); b != nil {
			ch.va += 4
			ch.words--
			if ch.decode(le.Uint32(b)); ch.words == 0 {
				ch.retire()
			}
		}
	default:
		ch.fetch()
	}
	return true
}

// fetch reads the next entry of the ring.
func (ch *channel) fetch() {
	size := uint32(1) << ch.cfg.Ring.Log2
	if ch.put >= size || ch.get >= size {
		put := ch.put
		ch.put = ch.get
		ch.refuse(gf100.PBDMAIntrGPPtr, 0, put)
		return
	}
	b := ch.at(ch.cfg.Ring.Base+uint64(ch.get)*gf100.GPEntrySize, gf100.GPEntrySize, false)
	if b == nil {
		return
	}
	e := gf100.DecodeGPEntry(le.Uint64(b))
	ch.get = (ch.get + 1) & (size - 1)
	if e.Words > 0 {
		ch.va, ch.words = e.VA, e.Words
		return
	}
	ch.retire()
	if e.Opcode != gf100.GPOpNOP {
		ch.refuse(gf100.PBDMAIntrGPEntry, 0, uint32(e.Opcode))
	}
}

// retire shows the owner that an entry was read.
func (ch *channel) retire() {
	ch.progress.Get, ch.progress.TopLevelGet, ch.progress.GPGet = ch.va, ch.va, ch.get
}

// decode takes a word of a pushbuffer.
func (ch *channel) decode(w uint32) {
	p := &ch.packet
	if p.Count > 0 {
		method := p.Method
		p.Count--
		if p.Kind != gf100.HeaderNonIncreasing {
			p.Method = (p.Method + 4) & 0x3ffc
		}
		if p.Kind == gf100.HeaderIncreaseOnce {
			p.Kind = gf100.HeaderNonIncreasing
		}
		ch.method(p.Subchannel, method, w)
		return
	}
	switch h := gf100.DecodeHeader(w); h.Kind {
	case gf100.HeaderNOP, gf100.HeaderSubDevMask: // there is one device
	case gf100.HeaderImmediate:
		ch.method(h.Subchannel, h.Method, uint32(h.Data))
	case gf100.HeaderEnd:
		ch.words = 0
	case gf100.HeaderInvalid:
		ch.refuse(gf100.PBDMAIntrPBEntry, 0, w)
	default:
		*p = h
	}
}

// method executes a method. Those below 0x100 are the host's (cl906f.h).
func (ch *channel) method(subch uint8, method uint16, data uint32) {
	o, name := &ch.objects[subch], uint32(subch)<<16|uint32(method)
	switch {
	case method == 0: // SET_OBJECT
		*o = object{class: uint16(data), engine: int(data >> 16 & 0x1f)}
		kind, ok := map[int]engine.Kind{gf100.EngineGR: engine.KindGR, gf100.EngineCE0: engine.KindCE, gf100.EngineCE1: engine.KindCE}[o.engine]
		o.bound = ok && slices.ContainsFunc(engine.Classes(), func(c *engine.Class) bool { return c.ID == o.class && c.Kind == kind })
		if !o.bound && o.engine != 0x1f { // which is software
			ch.refuse(gf100.PBDMAIntrMethod, name, data)
		}
	case method >= 0x10 && method < 0x1c: // SEMAPHOREA to SEMAPHOREC
		ch.semaphore[method/4-4] = data
	case method == 0x1c: // SEMAPHORED
		ch.semaphoreD(name, data)
	case method == 0x20: // NON_STALL_INTERRUPT
		ch.completed(o.engine % gf100.Engines)
	case method == 0x2c: // MEM_OP_B, of which one operation invalidates
		ch.tlb.Flush()
	case method == 0x50: // SET_REFERENCE
		ch.progress.Ref = data
	case slices.Contains([]uint16{0x08, 0x24, 0x28, 0x7c, 0x80}, method): // nothing is to be done for these
	case method < 0x100:
		ch.refuse(gf100.PBDMAIntrMethod, name, data)
	case !o.bound:
		ch.refuse(gf100.PBDMAIntrEmptySubch, name, data)
	default:
		out, f := engine.Illegal, &ch.gr.Fault
		if o.engine == gf100.EngineGR {
			out = ch.gr.Method(&ch.env, o.class, uint32(method), data)
		} else {
			ce := &ch.ce[o.engine-gf100.EngineCE0]
			out, f = ce.Method(&ch.env, uint32(method), data), &ce.Fault
		}
		if ch.outcome(o.engine, out, f); out == engine.Illegal {
			ch.refuse(gf100.PBDMAIntrMethod, name, data)
		}
	}
}

// outcome acts on the result of an engine's call. It returns false if the engine waits for
// memory to change.
func (ch *channel) outcome(e int, out engine.Outcome, f *engine.Fault) bool {
	ch.busy = -1
	switch out {
	case engine.Busy:
		ch.busy = e
		return e != gf100.EngineGR || !ch.gr.Waiting()
	case engine.Faulted:
		ch.fault(gf100.EngineClients[e], *f)
	}
	return true
}

// semaphoreD releases a semaphore, or begins to wait for one.
func (ch *channel) semaphoreD(name, data uint32) {
	switch op := data & 0xf; {
	case op == 1 || op == 4 || op == 8:
		ch.acquire = op
	case op != 2:
		ch.refuse(gf100.PBDMAIntrSemaphore, name, data)
	case data>>24&1 != 0: // the payload alone
		if b := ch.at(ch.semaphoreVA(), 4, true); b != nil {
			le.PutUint32(b, ch.semaphore[2])
		}
	default:
		if b := ch.at(ch.semaphoreVA(), 16, true); b != nil {
			le.PutUint64(b[8:], ch.d.Time())
			le.PutUint64(b, uint64(ch.semaphore[2]))
		}
	}
}

func (ch *channel) semaphoreVA() uint64 {
	return uint64(ch.semaphore[0]&0xff)<<32 | uint64(ch.semaphore[1]&^3)
}

// tryAcquire looks at the semaphore that the channel waits for.
func (ch *channel) tryAcquire() bool {
	b := ch.at(ch.semaphoreVA(), 4, false)
	if b == nil {
		return true
	}
	v, want := le.Uint32(b), ch.semaphore[2]
	if ch.acquire == 1 && v != want || ch.acquire == 4 && int32(v-want) < 0 || ch.acquire == 8 && v&want == 0 {
		return false
	}
	ch.acquire = 0
	return true
}
