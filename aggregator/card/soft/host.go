package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// hostState is what the host methods keep for a channel.
type hostState struct {
	Semaphore [4]uint32 // SEMAPHOREA to SEMAPHOREC; of a c86f SEM_ADDR_LO to SEM_PAYLOAD_HI
	MemOp     [3]uint32 // MEM_OP_A to MEM_OP_C
	Ref       uint32
	Acquire   acquire
}

// acquire is a semaphore acquire that has not succeeded.
type acquire struct {
	Pending bool
	When    condition
	Wide    bool // the semaphore has 64 bits
	VA      uint64
	Payload uint64
	Waited  bool // counted
}

// condition is what a semaphore's value must be for an acquire to succeed.
type condition uint8

const (
	whenEqual    condition = iota
	whenGEq                // unsigned
	whenCircular           // at most half of the range ahead of the payload
	whenAnd                // has a bit of the payload
	whenNor                // lacks a bit that the payload lacks too
)

func (w condition) holds(v, payload uint64, wide bool) bool {
	if !wide { // the sign, and the bits that are not, are those of 32 bits
		v, payload = v<<32, payload<<32
	}
	switch w {
	case whenEqual:
		return v == payload
	case whenGEq:
		return v >= payload
	case whenCircular:
		return int64(v-payload) >= 0
	case whenAnd:
		return v&payload != 0
	}
	if !wide {
		v |= 1<<32 - 1
	}
	return ^(v | payload) != 0
}

// hostMethod is a method below 0x100, which the PBDMA executes itself.
type hostMethod struct {
	name string
	do   func(x *run, subch uint8, data uint32)
}

// hostMethods are the host methods of a channel's class, by offset / 4.
type hostMethods [firstEngineMethod / 4]hostMethod

// hostMethods906f are NVIDIA's cl906f.h.
var hostMethods906f = hostMethods{
	0:        {"NV906F_SET_OBJECT", (*run).setObject906f},
	0x04 / 4: {"NV906F_ILLEGAL", nil},
	0x08 / 4: {"NV906F_NOP", func(*run, uint8, uint32) {}},
	0x10 / 4: {"NV906F_SEMAPHOREA", func(x *run, _ uint8, d uint32) { x.Host.Semaphore[0] = d }},
	0x14 / 4: {"NV906F_SEMAPHOREB", func(x *run, _ uint8, d uint32) { x.Host.Semaphore[1] = d }},
	0x18 / 4: {"NV906F_SEMAPHOREC", func(x *run, _ uint8, d uint32) { x.Host.Semaphore[2] = d }},
	0x1c / 4: {"NV906F_SEMAPHORED", (*run).semaphoreD},
	0x20 / 4: {"NV906F_NON_STALL_INTERRUPT", (*run).nonStallInterrupt},
	0x24 / 4: {"NV906F_FB_FLUSH", func(*run, uint8, uint32) {}}, // nothing is ever on the way
	0x28 / 4: {"NV906F_MEM_OP_A", func(x *run, _ uint8, d uint32) { x.Host.MemOp[0] = d }},
	0x2c / 4: {"NV906F_MEM_OP_B", (*run).memOpB},
	0x50 / 4: {"NV906F_SET_REFERENCE", (*run).setReference},
	0x7c / 4: {"NV906F_CRC_CHECK", func(*run, uint8, uint32) {}},
	0x80 / 4: {"NV906F_YIELD", func(x *run, _ uint8, _ uint32) { x.verdict = yielded }},
}

func (x *run) hostMethod(subch uint8, method uint16, data uint32) {
	do := x.kind.host[method/4].do
	if do == nil {
		x.hold(heldMethod{Subch: subch, Method: method, Data: data, Intr: gf100.PBDMAIntrMethod})
		return
	}
	do(x, subch, data)
}

// setObject906f binds a class to the subchannel: class in bits 15:0, engine in bits 20:16. For
// an unknown class the graphics engine raises its own interrupt; for the other engines the
// PBDMA does.
func (x *run) setObject906f(subch uint8, data uint32) {
	o := object{Class: uint16(data), Engine: uint8(data >> 16 & 0x1f), Bound: true}
	if o.Engine == gf100.EngineGR && !engineTakes(o) {
		x.illegalClass(subch, data)
		return
	}
	if o.Engine != engineSoftware && !engineTakes(o) {
		x.hold(heldMethod{Subch: subch, Method: 0, Data: data, Intr: gf100.PBDMAIntrMethod})
		return
	}
	x.Objects[subch] = o
	if o.Engine == gf100.EngineCE0 || o.Engine == gf100.EngineCE1 {
		x.copyEngine(o.Engine).Class = o.Class
	}
}

// engineKinds has the kind of each engine by its number; others have no entry.
var engineKinds = map[uint8]engine.Kind{
	gf100.EngineGR:  engine.KindGR,
	gf100.EngineCE0: engine.KindCE,
	gf100.EngineCE1: engine.KindCE,
}

// engineTakes reports whether the engine executes the class.
func engineTakes(o object) bool {
	kind, ok := engineKinds[o.Engine]
	for _, c := range engine.Classes() {
		if ok && c.ID == o.Class && c.Kind == kind {
			return true
		}
	}
	return false
}

// Fields of SEMAPHORED.
const (
	semOpMask      = 0xf
	semAcquire     = 1
	semRelease     = 2
	semAcquireGEq  = 4
	semAcquireAnd  = 8
	semReleaseWord = 1 << 24 // the payload alone, without the time
)

func (x *run) semaphoreD(subch uint8, d uint32) {
	va := uint64(x.Host.Semaphore[0]&0xff)<<32 | uint64(x.Host.Semaphore[1]&^3)
	switch op := d & semOpMask; op {
	case semRelease:
		x.release(va, d&semReleaseWord != 0)
	case semAcquire:
		x.acquire(acquire{When: whenEqual, VA: va, Payload: uint64(x.Host.Semaphore[2])})
	case semAcquireGEq:
		x.acquire(acquire{When: whenCircular, VA: va, Payload: uint64(x.Host.Semaphore[2])})
	case semAcquireAnd:
		x.acquire(acquire{When: whenAnd, VA: va, Payload: uint64(x.Host.Semaphore[2])})
	default:
		x.hold(heldMethod{Subch: subch, Method: 0x1c, Data: d, Intr: gf100.PBDMAIntrSemaphore})
	}
}

// acquire begins an acquire, and has the channel wait if it does not succeed.
func (x *run) acquire(a acquire) {
	a.Pending = true
	x.Host.Acquire = a
	if !x.tryAcquire() && x.verdict == more {
		x.verdict = blocked
	}
}

// semaphore returns the n bytes that a release writes, nil if the channel has faulted.
func (x *run) semaphore(va uint64, n int) []byte {
	b, fault := x.Bytes(va, n, true)
	if fault == nil && len(b) < n {
		fault = x.vm.fail(va+uint64(len(b)), true, shadowpt.PageNotPresent)
	}
	if fault != nil {
		x.fail(gf100.ClientHost, *fault)
		return nil
	}
	return b
}

// release writes the payload last, after the time stamp of a long semaphore: a reader that
// sees the payload sees the rest.
func (x *run) release(va uint64, short bool) {
	n := 16
	if short {
		n = 4
	}
	b := x.semaphore(va, n)
	if b == nil {
		return
	}
	if !short {
		binary.LittleEndian.PutUint64(b[8:], x.card.now())
		binary.LittleEndian.PutUint32(b[4:], 0)
	}
	binary.LittleEndian.PutUint32(b, x.Host.Semaphore[2])
	x.released = true
	x.card.stats.Releases.Add(1)
}

// tryAcquire polls the semaphore. It returns false if the channel must wait, or if the read
// faulted.
func (x *run) tryAcquire() bool {
	a := &x.Host.Acquire
	n := 4
	if a.Wide {
		n = 8
	}
	b, fault := x.fetch(a.VA, n)
	if fault != nil {
		a.Pending = false
		x.fail(gf100.ClientHost, *fault)
		return false
	}
	var v uint64
	if a.Wide {
		v = binary.LittleEndian.Uint64(b)
	} else {
		v = uint64(binary.LittleEndian.Uint32(b))
	}
	if !a.When.holds(v, a.Payload, a.Wide) {
		if !a.Waited {
			a.Waited = true
			x.card.stats.AcquireWaits.Add(1)
		}
		return false
	}
	a.Pending = false
	x.card.stats.Acquires.Add(1)
	return true
}

// nonStallInterrupt raises the event of the engine that the subchannel speaks
// to.
func (x *run) nonStallInterrupt(subch uint8, _ uint32) {
	e := x.Objects[subch].Engine
	if e >= gf100.Engines {
		e = gf100.EngineGR
	}
	x.nonStall |= 1 << e
	x.card.stats.NonStall.Add(1)
}

// Operations of MEM_OP_B, bits 31:27.
const memOpInvalidate = 9

func (x *run) memOpB(_ uint8, d uint32) {
	// The other operations order or flush caches that this card does not have.
	if d>>27 == memOpInvalidate {
		x.flush()
	}
}

// flush has the owner's channels drop their translations. The turn goes on when no step of them
// can use an old one.
func (x *run) flush() {
	x.card.stats.Invalidates.Add(1)
	x.card.flushes[x.Owner].Add(1)
	x.card.flushes[anyOwner].Add(1)
	x.verdict, x.flushed = yielded, true
}

func (x *run) setReference(_ uint8, d uint32) {
	x.Host.Ref = d
	x.writeUSERD(gf100.USERDRef, d)
}

// HostMethodName names a method that the reader of pushbuffers executes itself, of a Hopper's channels or of a Fermi's. It is
// empty for others.
func HostMethodName(hopper bool, method uint32) string {
	of := &hostMethods906f
	if hopper {
		of = &hostMethodsC86F
	}
	if method/4 >= uint32(len(of)) {
		return ""
	}
	return of[method/4].name
}
