package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// hostMethodsC86F are NVIDIA's clc86f.h, and what its predecessor clc36f.h says besides. Methods of
// one channel are executed in order, so there is never an idle engine to wait for.
var hostMethodsC86F = hostMethods{
	0:        {"NVC86F_SET_OBJECT", (*run).setObjectC86F},
	0x04 / 4: {"NVC36F_ILLEGAL", nil},
	0x08 / 4: {"NVC36F_NOP", func(*run, uint8, uint32) {}},
	0x20 / 4: {"NVC36F_NON_STALL_INTERRUPT", (*run).nonStallC86F},
	0x28 / 4: {"NVC86F_MEM_OP_A", func(x *run, _ uint8, d uint32) { x.Host.MemOp[0] = d }},
	0x2c / 4: {"NVC86F_MEM_OP_B", func(x *run, _ uint8, d uint32) { x.Host.MemOp[1] = d }},
	0x30 / 4: {"NVC86F_MEM_OP_C", func(x *run, _ uint8, d uint32) { x.Host.MemOp[2] = d }},
	0x34 / 4: {"NVC86F_MEM_OP_D", (*run).memOpD},
	0x50 / 4: {"NVC36F_SET_REFERENCE", (*run).setReference},
	0x5c / 4: {"NVC86F_SEM_ADDR_LO", func(x *run, _ uint8, d uint32) { x.Host.Semaphore[0] = d }},
	0x60 / 4: {"NVC86F_SEM_ADDR_HI", func(x *run, _ uint8, d uint32) { x.Host.Semaphore[1] = d }},
	0x64 / 4: {"NVC86F_SEM_PAYLOAD_LO", func(x *run, _ uint8, d uint32) { x.Host.Semaphore[2] = d }},
	0x68 / 4: {"NVC86F_SEM_PAYLOAD_HI", func(x *run, _ uint8, d uint32) { x.Host.Semaphore[3] = d }},
	0x6c / 4: {"NVC86F_SEM_EXECUTE", (*run).semExecute},
	0x78 / 4: {"NVC86F_WFI", func(*run, uint8, uint32) {}},
	0x7c / 4: {"NVC36F_CRC_CHECK", func(*run, uint8, uint32) {}},
	0x80 / 4: {"NVC36F_YIELD", func(x *run, _ uint8, _ uint32) { x.verdict = yielded }},
}

// hopperEngines are the engines of the classes on a channel of the graphics engine, whose runlist
// the first copy engine shares.
var hopperEngines = map[uint16]uint8{
	0xcb97: gf100.EngineGR, 0xcbc0: gf100.EngineGR, 0xa140: gf100.EngineGR, 0x902d: gf100.EngineGR, 0xc8b5: gf100.EngineCE0,
}

// setObjectC86F binds a class to the subchannel. The class alone says which engine has it.
func (x *run) setObjectC86F(subch uint8, data uint32) {
	class, own := uint16(data), x.home()
	e, ok := hopperEngines[class]
	if own != gf100.EngineGR && e != gf100.EngineGR {
		e = own
	}
	if !ok || own != gf100.EngineGR && e != own {
		x.stop(refusalFault(own, subch, engine.Refusal{Class: class, Reason: engine.NoClass, Data: data}))
		return
	}
	x.Objects[subch] = object{Class: class, Engine: e, Bound: true}
}

// home is the first engine of the channel's runlist.
func (ch *channel) home() uint8 { return uint8(gf100.Executing[ch.direct.Engine]) }

// bindCopy binds the copy class to its subchannel, where drivers use it without SET_OBJECT.
func bindCopy(ch *channel) {
	const subchannel = 4
	e := ch.home()
	if e == gf100.EngineGR {
		e = gf100.EngineCE0
	}
	ch.Objects[subchannel] = object{Class: 0xc8b5, Engine: e, Bound: true}
}

// nonStallC86F raises the event of the first engine of the channel's runlist.
func (x *run) nonStallC86F(uint8, uint32) {
	x.nonStall |= 1 << x.home()
	x.card.stats.NonStall.Add(1)
}

// Fields of SEM_EXECUTE. Bits that an operation does not use are ignored.
const (
	semExecOperation = 7
	semExecWide      = 1 << 24
	semExecTime      = 1 << 25
	semExecUnsigned  = 1 << 31

	semExecRelease   = 1
	semExecReduction = 6
)

// semExecAcquires are the conditions of the operations that acquire.
var semExecAcquires = map[uint32]condition{0: whenEqual, 2: whenGEq, 3: whenCircular, 4: whenAnd, 5: whenNor}

func (x *run) semExecute(subch uint8, d uint32) {
	s := &x.Host.Semaphore
	va, op, wide := uint64(s[1])<<32|uint64(s[0]), d&semExecOperation, d&semExecWide != 0
	when, acquires := semExecAcquires[op]
	reduction, unsigned := engine.Reduction(d>>27&0xf), d&semExecUnsigned != 0
	align := uint64(4)
	switch {
	case !acquires && d&semExecTime != 0:
		align = 16
	case wide:
		align = 8
	}
	if va%align != 0 || va > x.kind.last || !acquires && op != semExecRelease && op != semExecReduction ||
		op == semExecReduction && !reduction.Supported(wide, unsigned) {
		x.hold(heldMethod{Subch: subch, Method: 0x6c, Data: d, Intr: gf100.PBDMAIntrSemaphore})
		return
	}
	payload := uint64(s[3])<<32 | uint64(s[2])
	if acquires {
		if !wide {
			payload = uint64(uint32(payload))
		}
		x.acquire(acquire{When: when, Wide: wide, VA: va, Payload: payload})
		return
	}
	x.releaseC86F(va, payload, d)
}

// releaseC86F releases or reduces. The payload is written after the time: a reader that sees it sees
// the rest.
func (x *run) releaseC86F(va, payload uint64, d uint32) {
	n, size := 4, 4
	if d&semExecWide != 0 {
		n, size = 8, 8
	}
	if d&semExecTime != 0 {
		n = 16
	}
	b := x.semaphore(va, n)
	if b == nil {
		return
	}
	if n == 16 {
		binary.LittleEndian.PutUint64(b[8:], x.card.now())
		clear(b[size:8])
	}
	switch {
	case d&semExecOperation == semExecReduction:
		engine.Reduction(d>>27&0xf).Apply(b[:size], payload, d&semExecUnsigned != 0)
	case size == 8:
		binary.LittleEndian.PutUint64(b, payload)
	default:
		binary.LittleEndian.PutUint32(b, uint32(payload))
	}
	x.released = true
	x.Hopper.Graphics.Released()
	x.card.stats.Releases.Add(1)
}

// Operations of MEM_OP_D, bits 31:27.
const (
	memOpMembar           = 5
	memOpInvalidateTarget = 10
	memOpFirstOfL2        = 13 // to memOpLastOfL2: of a cache that this card does not have
	memOpLastOfL2         = 21
)

// Fields of MEM_OP_C of an invalidate.
const (
	memOpEveryDirectory = 1 << 0
	memOpReplay         = 7 << 2
)

// memOpD invalidates the channel's own address space. Others, and what replays or counts accesses,
// are not for a guest's channel.
func (x *run) memOpD(subch uint8, d uint32) {
	switch op := d >> 27; {
	case op == memOpMembar, op >= memOpFirstOfL2 && op <= memOpLastOfL2:
		return
	case op == memOpInvalidate, op == memOpInvalidateTarget:
		c := x.Host.MemOp[2]
		dir := directory{addr: uint64(d&(1<<27-1))<<32 | uint64(c&^0xfff), target: shadowpt.Target(c >> 10 & 3)}
		if c&(memOpEveryDirectory|memOpReplay) == 0 && dir.names(x.vm.tlb.Space()) {
			x.flush()
			return
		}
	}
	x.hold(heldMethod{Subch: subch, Method: 0x34, Data: d, Intr: gf100.PBDMAIntrMethod})
}
