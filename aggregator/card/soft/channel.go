package soft

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// chanState is a channel's state. Transitions happen under Card.mu:
//
//	idle -> ready       doorbell, enable, runlist
//	ready -> running    a PBDMA takes it
//	running -> idle     nothing left to fetch
//	running -> ready    its turn ended
//	running -> waiting  a semaphore acquire failed
//	running -> held     a method waits for software, and with it the PBDMA
//	running -> stalled  its engine is trapped
//	running -> faulted  an MMU fault; only a new bind ends it
//	waiting -> ready    memory changed, or the retry timer
//	held -> ready       the interrupt was acknowledged
//	stalled -> ready    the engine was resumed
type chanState uint8

const (
	stateIdle chanState = iota
	stateReady
	stateRunning
	stateWaiting
	stateHeld
	stateStalled
	stateFaulted
)

// channel is a bound channel. known, vm, use and exec belong to the PBDMA that runs the
// channel, the rest to Card.mu.
type channel struct {
	card  *Card
	id    uint8
	inst  uint64 // of the instance block, in VRAM
	token uint64 // see contexts
	owner uint8  // number of its owner, below gf100.Owners
	keep  int    // how many unbound channels' states are kept for the owner

	state           chanState
	doorbellPending bool   // its doorbell was written while it ran
	preempted       bool   // asked to leave by NV_PFIFO_PREEMPT, and still running
	holder          int    // the PBDMA that holds it in stateHeld
	engine          uint8  // the trapped engine, in stateStalled
	looks           int    // failed polls of its semaphore
	sawMem          uint64 // fifo.memGen when its step began
	report          report // in stateFaulted
	kick            atomic.Int32

	dead  atomic.Bool // unbound; to be thrown away
	yield atomic.Bool // leave the PBDMA at the next step

	vm  vm
	use use
	exec
}

// report is a fault that is not yet reported to the driver.
type report struct {
	due   bool
	unit  faultUnit
	fault engine.Fault
}

// exec is a channel's execution state between two steps, plain data: what RAMFC
// and the engine contexts hold on a real card.
type exec struct {
	userd       uint64
	userdTarget shadowpt.Target
	ring        uint64 // VA of the GPFIFO
	ringLog2    uint32
	gpGet       uint32

	seg      segment
	mainGet  uint64 // return address of a subroutine on the main level
	packet   packet
	subMask  uint16 // sub-device mask; bit 0 is this card
	subSaved uint16

	objects [8]object // by subchannel
	host    hostState

	gr       engine.GR
	ce       [gf100.CEs]engine.CE
	pending  int8 // engine with work left, -1 for none
	held     heldMethod
	flushGen uint64 // invalidate that has to be complete first, 0 for none
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

// heldMethod is a method that waits: for software to act on an interrupt, or, without
// interrupt bits, for a trapped engine.
type heldMethod struct {
	valid  bool
	subch  uint8
	method uint16
	data   uint32
	intr   uint32 // bits of NV_PPBDMA_INTR_0 it raises
}

// engineSoftware is the engine number of classes that the driver executes
// (cl906f.h, NV906F_SET_OBJECT_ENGINE_SW).
const engineSoftware = 0x1f

func newChannel(c *Card, id uint8, inst uint64, block []byte) *channel {
	ch := &channel{card: c, id: id, inst: inst}
	ch.vm.card, ch.vm.user = c, int(id)
	ch.vm.tlb.Bind(instanceSpace(block))
	ch.ramfc(block)
	ch.owner, ch.keep = uint8(gf100.InstOwner.Get(block)), int(gf100.InstKeep.Get(block))
	if ch.keep == 0 || ch.keep > maxSaved {
		ch.keep = maxSaved
	}
	if c.contexts.golden != nil {
		ch.gr = *c.contexts.golden
	}
	return ch
}

// ramfc reads the driver's values from the instance block.
func (x *exec) ramfc(block []byte) {
	userd, target := gf100.InstanceUSERD(block)
	x.userd, x.userdTarget = userd, shadowpt.Target(target)
	x.ring = uint64(gf100.InstGPBaseHi.Get(block))<<32 | uint64(gf100.InstGPBaseLo.Get(block))<<3
	x.ringLog2 = gf100.InstGPLimit2.Get(block)
	x.gpGet = gf100.InstGPGet.Get(block)
	x.host.ref = gf100.InstRef.Get(block)
	x.subMask = 0xfff
	x.pending = -1
}

// load reads the part of the instance block that a driver may have changed while the
// channel was off its PBDMA: the address space.
func (ch *channel) load() {
	block := ch.card.vram.slice(ch.inst, gf100.InstanceSize)
	if block == nil {
		return
	}
	if s := instanceSpace(block); s != ch.vm.tlb.Space() {
		ch.vm.tlb.Bind(s)
	}
}

// save writes back the state that a driver may read or move elsewhere, unless the driver may
// have freed its memory. It belongs to a step, so that pages do not move meanwhile.
func (ch *channel) save() {
	block := ch.card.vram.slice(ch.inst, gf100.InstanceSize)
	if block == nil || ch.dead.Load() {
		return
	}
	gf100.InstGPGet.Put(block, ch.gpGet)
	gf100.InstRef.Put(block, ch.host.ref)
}
