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
		x.fail(gf100.ClientHost, engine.Fault{VA: x.userd, Reason: uint8(shadowpt.PageNotPresent)})
		return
	}
	size := uint32(1) << x.ringLog2
	if put >= size || x.gpGet >= size {
		// Hardware ignores the pointer and reports it to the driver.
		x.writeUSERD(gf100.USERDGPPut, x.gpGet)
		x.hold(heldMethod{intr: gf100.PBDMAIntrGPPtr, data: put})
		return
	}
	if put == x.gpGet {
		// A channel that was bound again may have fetched an entry whose segment was lost
		// with its state, and that it therefore never retired.
		if get, ok := x.readUSERD(gf100.USERDGPGet); ok && get != x.gpGet {
			x.writeUSERD(gf100.USERDGPGet, x.gpGet)
		}
		x.verdict = empty
		return
	}
	b, fault := x.fetch(x.ring+uint64(x.gpGet)*gf100.GPEntrySize, gf100.GPEntrySize)
	if fault != nil {
		x.fail(gf100.ClientHost, *fault)
		return
	}
	x.card.stats.GPEntries.Add(1)
	e := gf100.DecodeGPEntry(binary.LittleEndian.Uint64(b))
	x.gpGet = (x.gpGet + 1) & (size - 1)
	x.use.fetched++
	if e.Words == 0 {
		x.retired()
		if e.Opcode != gf100.GPOpNOP {
			x.hold(heldMethod{intr: gf100.PBDMAIntrGPEntry, data: uint32(e.Opcode)})
		}
		return
	}
	if e.Level && !x.seg.level {
		x.mainGet = x.seg.va
	}
	x.seg = segment{va: e.VA, words: e.Words, level: e.Level}
}

// retired shows the driver the channel's progress after each GPFIFO entry: the ring slot is
// free, and the segment's memory may be reused.
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
		x.fail(gf100.ClientHost, *fault)
		return 0
	}
	if len(b) < 4 { // a word across two pages cannot be: addresses are aligned
		x.fail(gf100.ClientHost, engine.Fault{VA: x.seg.va, Reason: uint8(shadowpt.PageNotPresent)})
		return 0
	}
	words := b[:len(b)&^3]
	x.progress = true
	taken := 0
	for x.ended = false; taken < len(words) && x.goesOn() && !x.ended; {
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

// goesOn reports whether the next word may be decoded in this step.
func (x *run) goesOn() bool {
	return x.verdict == more && x.pending < 0 && x.env.Launches < launchesPerStep && x.env.Moved < bytesPerStep
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
		p.method = (p.method + 4) & methodMask
	case gf100.HeaderIncreaseOnce:
		p.method = (p.method + 4) & methodMask
		p.kind = gf100.HeaderNonIncreasing
	}
	x.method(p.subch, method, data)
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
		x.subSaved = h.Data
	case gf100.MaskUse:
		x.subMask = x.subSaved
	}
}

func (x *run) readUSERD(off uint64) (uint32, bool) {
	b := x.vm.memory(x.userdTarget, x.userd+off, 4, false)
	if b == nil {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b), true
}

func (x *run) writeUSERD(off uint64, v uint32) {
	if b := x.vm.memory(x.userdTarget, x.userd+off, 4, true); b != nil {
		binary.LittleEndian.PutUint32(b, v)
	}
}
