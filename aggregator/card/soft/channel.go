package soft

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
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
//	running -> contended its engine serves another channel
//	running -> stalled  its engine is trapped
//	running -> faulted  an MMU fault; only a new bind ends it
//	waiting -> ready    memory changed, or the retry timer
//	held -> ready       the interrupt was acknowledged
//	contended -> ready  it was given the engine
//	stalled -> ready    the engine was resumed
type chanState uint8

const (
	stateIdle chanState = iota
	stateReady
	stateRunning
	stateWaiting
	stateHeld
	stateContended
	stateStalled
	stateFaulted
)

// channel is a bound channel. vm, Use and Exec belong to the PBDMA that runs the channel, the
// rest to Card.mu.
type channel struct {
	card *Card
	kind *channelKind
	vm   vm
	// units are its contexts on the engines, nil where it has none. They are in Exec.
	units  [gf100.Engines]unit
	direct *card.Description // of a channel that OpenChannel made, nil of one of the registers
	seen   card.State        // of such a channel; see opened.State

	dead  atomic.Bool // unbound; to be thrown away
	yield atomic.Bool // leave the PBDMA at the next step

	programReport string // see ProgramReport; for people, so not in the state

	ChannelState
}

// ChannelState is what the card knows of a bound channel.
type ChannelState struct {
	ID      uint8
	Inst    uint64 // of the instance block, in VRAM
	Token   uint64 // see Contexts
	Session uint64 // of Contexts, when it was bound
	Owner   uint8  // number of its owner, below gf100.Owners
	Keep    int    // how many unbound channels' states are kept for the owner

	State           chanState
	DoorbellPending bool   // its doorbell was written while it ran
	Preempted       bool   // asked to leave by NV_PFIFO_PREEMPT, and still running
	Holder          int    // the PBDMA that holds it in stateHeld
	Engine          uint8  // that it waits for, in stateStalled and stateContended
	Has             uint8  // in stateReady: bits of the engines that it has been given
	Looks           int    // failed polls of its semaphore
	SawMem          uint64 // fifo.memoryGen when its step began
	Report          report // in stateFaulted
	Kick            uint8  // number plus one of the engine as whose fault it ends at its next step

	Use Account
	Exec
}

// report is a fault that is not yet reported to the driver.
type report struct {
	Due   bool
	Unit  faultUnit
	Fault engine.Fault
}

// Exec is a channel's execution state between two steps, plain data: what RAMFC
// and the engine contexts hold on a real card.
type Exec struct {
	USERD       uint64
	USERDTarget shadowpt.Target
	Ring        uint64 // VA of the GPFIFO
	RingLog2    uint32
	GPGet       uint32

	Seg      segment
	SegBase  uint64 // bits 56:40 of the addresses of segments
	MainGet  uint64 // return address of a subroutine on the main level
	Packet   packet
	SubMask  uint16 // sub-device mask; bit 0 is this card
	SubSaved uint16

	Objects [8]object // by subchannel
	Host    hostState

	GR      engine.GR
	Grid    engine.Grid // of GR
	CE      [gf100.CEs]engine.CE
	Hopper  *engine.Hopper // of a c86f, in place of GR and CE
	Pending int8           // engine with work left, -1 for none
	Held    heldMethod
}

// segment is what is left of the GPFIFO entry being read.
type segment struct {
	VA    uint64
	Words uint32
	Level bool
}

// packet is what is left of the pushbuffer packet being read.
type packet struct {
	Kind   gf100.HeaderKind
	Subch  uint8
	Method uint16
	Count  uint16
}

// object is a class bound to a subchannel.
type object struct {
	Class  uint16
	Engine uint8
	Bound  bool
}

// heldMethod is a method that waits: for software to act on an interrupt, or, without
// interrupt bits, for a trapped engine.
type heldMethod struct {
	Valid  bool
	Subch  uint8
	Method uint16
	Data   uint32
	Intr   uint32 // bits of NV_PPBDMA_INTR_0 it raises
}

// engineSoftware is the engine number of classes that the driver executes
// (cl906f.h, NV906F_SET_OBJECT_ENGINE_SW).
const engineSoftware = 0x1f

func newChannel(c *Card, id uint8, inst uint64, block []byte) *channel {
	ch := &channel{card: c, kind: &kind906f}
	kind906f.contexts(ch)
	ch.ID, ch.Inst, ch.Session = id, inst, c.contexts.Session
	ch.vm.card, ch.vm.user = c, int(id)
	ch.vm.bind(ch.kind.format, instanceSpace(block))
	ch.ramfc(block)
	ch.Owner = uint8(gf100.InstOwner.Get(block))
	ch.vm.owner = ch.Owner
	ch.keeps(int(gf100.InstKeep.Get(block)))
	if c.contexts.Golden != nil {
		ch.GR = *c.contexts.Golden
	}
	return ch
}

// keeps sets how many states are kept for the owner.
func (ch *channel) keeps(n int) {
	if ch.Keep = n; n <= 0 || n > maxSaved {
		ch.Keep = maxSaved
	}
}

// ramfc reads the driver's values from the instance block.
func (x *Exec) ramfc(block []byte) {
	userd, target := gf100.InstanceUSERD(block)
	x.USERD, x.USERDTarget = userd, shadowpt.Target(target)
	x.Ring = uint64(gf100.InstGPBaseHi.Get(block))<<32 | uint64(gf100.InstGPBaseLo.Get(block))<<3
	x.RingLog2 = gf100.InstGPLimit2.Get(block)
	x.GPGet = gf100.InstGPGet.Get(block)
	x.Host.Ref = gf100.InstRef.Get(block)
	x.SubMask = 0xfff
	x.Pending = -1
}

// load reads the part of the instance block that a driver may have changed while the
// channel was off its PBDMA: the address space.
func (ch *channel) load() {
	if ch.direct != nil {
		return
	}
	block := ch.card.vram.slice(ch.Inst, gf100.InstanceSize)
	if block == nil {
		return
	}
	if s := instanceSpace(block); s != ch.vm.tlb.Space() {
		ch.vm.bind(ch.kind.format, s)
	}
}

// save writes back the state that a driver may read or move elsewhere, unless the driver may
// have freed its memory. It belongs to a step, so that pages do not move meanwhile.
func (ch *channel) save() {
	if ch.direct != nil {
		return
	}
	block := ch.card.vram.slice(ch.Inst, gf100.InstanceSize)
	if block == nil || ch.dead.Load() {
		return
	}
	gf100.InstGPGet.Put(block, ch.GPGet)
	gf100.InstRef.Put(block, ch.Host.Ref)
}
