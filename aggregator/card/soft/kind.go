package soft

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// channelKind is what the ring, the pushbuffers and the address space of a class of channels mean.
// The rest of the card does not know which kind a channel is.
type channelKind struct {
	format *shadowpt.Format
	last   uint64 // address of its space
	host   *hostMethods
	// control carries out an entry of the ring without a segment.
	control func(x *run, opcode uint8, operand uint32)
	// contexts gives a channel its units, which are in its Exec.
	contexts func(*channel)
	begin    func(*channel) // binds the first objects
}

var kind906f, kindC86F channelKind

// channelKinds are those that OpenChannel takes, by class.
var channelKinds = map[uint16]*channelKind{0xc86f: &kindC86F}

// The rows are set here because host methods lead back to them.
func init() {
	kind906f = channelKind{
		format: shadowpt.Fermi, last: shadowpt.VASize - 1, host: &hostMethods906f, control: (*run).control906f,
		contexts: func(ch *channel) {
			ch.units[gf100.EngineGR] = &ch.GR
			ch.units[gf100.EngineCE0], ch.units[gf100.EngineCE1] = copyUnit{&ch.CE[0]}, copyUnit{&ch.CE[1]}
		},
	}
	kindC86F = channelKind{
		format: shadowpt.Hopper, last: shadowpt.Hopper.VASize() - 1, host: &hostMethodsC86F, control: (*run).controlC86F, begin: bindCopy,
		contexts: func(ch *channel) {
			if ch.Hopper == nil {
				ch.Hopper = new(engine.Hopper)
			}
			ch.units[gf100.EngineGR] = &ch.Hopper.Graphics
			ch.units[gf100.EngineCE0], ch.units[gf100.EngineCE1] = &ch.Hopper.Copy, &ch.Hopper.Copy
		},
	}
}

func (x *run) control906f(opcode uint8, _ uint32) {
	if opcode != gf100.GPOpNOP {
		x.hold(heldMethod{Intr: gf100.PBDMAIntrGPEntry, Data: uint32(opcode)})
	}
}

// setExtendedBase is the opcode of an entry that gives the segments after it bits 56:40 of their
// addresses (NVIDIA clc86f.h).
const setExtendedBase = 4

func (x *run) controlC86F(opcode uint8, operand uint32) {
	if opcode == setExtendedBase {
		x.SegBase = uint64(operand>>8&0x1ffff) << 40
		return
	}
	x.control906f(opcode, operand)
}
