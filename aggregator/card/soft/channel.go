package soft

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// chanState is where a channel is. Transitions happen under Card.mu:
//
//	idle -> ready       doorbell, enable, runlist
//	ready -> running    a PBDMA takes it
//	running -> idle     nothing left to fetch
//	running -> ready    its turn ended
//	running -> waiting  a semaphore acquire failed
//	running -> held     a method waits for software
//	running -> faulted  an MMU fault; only a new bind ends it
//	waiting -> ready    memory changed, or the retry timer
//	held -> ready       the interrupt was acknowledged
type chanState uint8

const (
	stateIdle chanState = iota
	stateReady
	stateRunning
	stateWaiting
	stateHeld
	stateFaulted
)

// channel is a bound channel: what RAMFC and the engine contexts hold on a real
// card. The part below exec belongs to the PBDMA that runs the channel.
type channel struct {
	card *Card
	id   uint8
	inst uint64 // of the instance block, in VRAM

	state  chanState
	dead   bool // unbound; to be thrown away
	rung   bool // its bell rang while it ran
	holder int  // the PBDMA that holds it in stateHeld

	yield atomic.Bool // leave the PBDMA at the next step

	exec
}

// exec is a channel's execution state between two steps: plain data, but for
// the address space's pointer to the card.
type exec struct {
	vm vm

	userd    uint64 // in VRAM
	ring     uint64 // VA of the GPFIFO
	ringLog2 uint32
	gpGet    uint32

	seg     segment
	mainGet uint64 // where the main level stands while a subroutine runs
	packet  packet
	subMask uint16 // sub-device mask; bit 0 is this card
	subKept uint16

	objects [8]object // by subchannel
	host    hostState

	gr      engine.GR
	ce      [2]engine.CE
	pending int8 // engine with work left, -1 for none
	held    heldMethod
}

// segment is what is left of the GPFIFO entry being read.
type segment struct {
	va    uint64
	words uint32
	level bool
}

// packet is what is left of the pushbuffer packet being read.
type packet struct {
	kind   gf100.HeaderKind
	subch  uint8
	method uint16
	count  uint16
}

// object is a class bound to a subchannel.
type object struct {
	class  uint16
	engine uint8
	bound  bool
}

// heldMethod is a method that waits for software to act on an interrupt.
type heldMethod struct {
	valid        bool
	subch        uint8
	method       uint16
	data         uint32
	intr         uint32 // bits of NV_PPBDMA_INTR_0 it raises
	fromEngine   bool
	engineNumber uint8
}

// EngineSoftware is the engine number of classes that the driver executes
// (cl906f.h, NV906F_SET_OBJECT_ENGINE_SW).
const engineSoftware = 0x1f

func newChannel(c *Card, id uint8, inst uint64, block []byte, g *golden) *channel {
	ch := &channel{card: c, id: id, inst: inst}
	ch.vm.card = c
	ch.vm.bind(instanceSpace(block))
	ch.userd = uint64(gf100.InstUSERDHi.Get(block))<<32 | uint64(gf100.InstUSERDLo.Get(block))<<12
	ch.ring = uint64(gf100.InstGPBaseHi.Get(block))<<32 | uint64(gf100.InstGPBaseLo.Get(block))<<3
	ch.ringLog2 = gf100.InstGPLimit2.Get(block)
	ch.gpGet = gf100.InstGPGet.Get(block)
	ch.host.ref = gf100.InstRef.Get(block)
	ch.subMask = 0xfff
	ch.pending = -1
	g.apply(&ch.gr)
	return ch
}

// save writes what a driver may move to another place, or bind again, back to
// the instance block.
func (ch *channel) save() {
	block := ch.card.vram.slice(ch.inst, gf100.InstanceSize)
	if block == nil {
		return
	}
	gf100.InstGPGet.Put(block, ch.gpGet)
	gf100.InstRef.Put(block, ch.host.ref)
}

// golden is the class state that the driver builds through the method ports
// when it makes the first graphics context; new channels start from it.
type golden struct {
	methods []goldenMethod
}

type goldenMethod struct {
	class  uint16
	method uint16
	data   uint32
}

// maxGolden bounds what a guest can make the card remember; nouveau writes
// about 1,300 methods.
const maxGolden = 8192

// goldenMethod records a write of the method ports (404488, 40448c).
func (f *fifo) goldenMethod(class, method, data uint32) {
	if len(f.golden.methods) < maxGolden {
		f.golden.methods = append(f.golden.methods, goldenMethod{uint16(class), uint16(method), data})
	}
}

func (g *golden) apply(gr *engine.GR) {
	for _, m := range g.methods {
		gr.ApplyDefault(m.class, uint32(m.method), m.data)
	}
}
