package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// fetchEntry reads the next GPFIFO entry.
func (x *run) fetchEntry() {
	put, ok := x.readUSERD(gf100.USERDGPPut)
	if !ok {
		x.fail(gf100.ClientHost, engine.Fault{VA: x.USERD, Reason: uint8(shadowpt.PageNotPresent)})
		return
	}
	size := uint32(1) << x.RingLog2
	if put >= size || x.GPGet >= size {
		// Hardware ignores the pointer and reports it to the driver.
		x.writeUSERD(gf100.USERDGPPut, x.GPGet)
		x.hold(heldMethod{Intr: gf100.PBDMAIntrGPPtr, Data: put})
		return
	}
	if put == x.GPGet {
		// A channel that was bound again may have fetched an entry whose segment was lost
		// with its state, and that it therefore never retired.
		if get, ok := x.readUSERD(gf100.USERDGPGet); ok && get != x.GPGet {
			x.writeUSERD(gf100.USERDGPGet, x.GPGet)
		}
		x.verdict = empty
		return
	}
	b, fault := x.fetch(x.Ring+uint64(x.GPGet)*gf100.GPEntrySize, gf100.GPEntrySize)
	if fault != nil {
		x.fail(gf100.ClientHost, *fault)
		return
	}
	x.card.stats.GPEntries.Add(1)
	x.env.Charge(engine.CostWalk) // for USERD
	e := gf100.DecodeGPEntry(binary.LittleEndian.Uint64(b))
	x.GPGet = (x.GPGet + 1) & (size - 1)
	x.Use.Fetched++
	if e.Words == 0 {
		x.retired()
		x.kind.control(x, e.Opcode, binary.LittleEndian.Uint32(b))
		return
	}
	if e.Level && !x.Seg.Level {
		x.MainGet = x.Seg.VA
	}
	x.Seg = segment{VA: x.SegBase | e.VA, Words: e.Words, Level: e.Level}
}

// retired shows the driver the channel's progress after each GPFIFO entry: the ring slot is
// free, and the segment's memory may be reused.
func (x *run) retired() {
	x.writeUSERD(gf100.USERDGPGet, x.GPGet)
	x.writeUSERD(gf100.USERDGet, uint32(x.Seg.VA))
	x.writeUSERD(gf100.USERDGetHi, uint32(x.Seg.VA>>32))
	top := x.Seg.VA
	if x.Seg.Level {
		top = x.MainGet
	}
	x.writeUSERD(gf100.USERDTopLevelGet, uint32(top))
	x.writeUSERD(gf100.USERDTopLevelGetHi, uint32(top>>32))
}

// fetch returns n bytes that must lie together, as ring entries and pushbuffer
// words do by their alignment.
func (x *run) fetch(va uint64, n int) ([]byte, *engine.Fault) {
	b, fault := x.Bytes(va, n, false)
	if fault != nil {
		return nil, fault
	}
	if len(b) < n {
		return nil, x.vm.fail(va+uint64(len(b)), false, shadowpt.PageNotPresent)
	}
	return b, nil
}

// consume decodes words of the segment that lie together.
func (x *run) consume() {
	if x.Seg.Words == 0 { // the packet needs words that the segment does not have
		x.fetchEntry()
		return
	}
	b, fault := x.Bytes(x.Seg.VA, min(int(x.Seg.Words), wordsPerLookup)*4, false)
	if fault != nil {
		x.fail(gf100.ClientHost, *fault)
		return
	}
	if len(b) < 4 { // a word across two pages cannot be: addresses are aligned
		x.fail(gf100.ClientHost, engine.Fault{VA: x.Seg.VA, Reason: uint8(shadowpt.PageNotPresent)})
		return
	}
	words := b[:len(b)&^3]
	x.progress = true
	taken := 0
	for x.ended = false; taken < len(words) && x.goesOn() && x.Pending < 0 && !x.ended; {
		taken += x.decode(words[taken:])
	}
	x.Seg.VA += uint64(taken)
	x.Seg.Words -= uint32(taken / 4)
	if x.ended {
		x.Seg.Words = 0
	}
	x.card.stats.Words.Add(uint64(taken / 4))
	if x.Seg.Words == 0 {
		x.retired()
	}
}

// wordsPerLookup is how many words of a segment are looked up at once.
const wordsPerLookup = 1024

// decode takes one header, or data words of the packet under way, and returns
// the bytes taken.
func (x *run) decode(words []byte) int {
	x.env.Charge(engine.CostWord)
	if x.Packet.Count == 0 {
		x.header(binary.LittleEndian.Uint32(words))
		return 4
	}
	p := &x.Packet
	if p.Kind == gf100.HeaderNonIncreasing && len(words) > 4 && p.Count > 1 {
		if n := x.inline(words[:min(len(words), int(p.Count)*4)]); n > 0 {
			p.Count -= uint16(n / 4)
			return n
		}
	}
	data := binary.LittleEndian.Uint32(words)
	method := p.Method
	p.Count--
	switch p.Kind {
	case gf100.HeaderIncreasing:
		p.Method = (p.Method + 4) & methodMask
	case gf100.HeaderIncreaseOnce:
		p.Method = (p.Method + 4) & methodMask
		p.Kind = gf100.HeaderNonIncreasing
	}
	x.method(p.Subch, method, data)
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
		x.hold(heldMethod{Intr: gf100.PBDMAIntrPBEntry, Data: w})
	default:
		x.Packet = packet{Kind: h.Kind, Subch: h.Subchannel, Method: h.Method, Count: h.Count}
	}
}

func (x *run) subDeviceMask(h gf100.Header) {
	switch h.MaskOp {
	case gf100.MaskSet:
		x.SubMask = h.Data
	case gf100.MaskStore:
		x.SubSaved = h.Data
	case gf100.MaskUse:
		x.SubMask = x.SubSaved
	}
}

func (x *run) readUSERD(off uint64) (uint32, bool) {
	b := x.vm.memory(x.USERDTarget, x.USERD+off, 4, false)
	if b == nil {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b), true
}

func (x *run) writeUSERD(off uint64, v uint32) {
	if b := x.vm.memory(x.USERDTarget, x.USERD+off, 4, true); b != nil {
		binary.LittleEndian.PutUint32(b, v)
	}
}
