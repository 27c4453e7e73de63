// Package structs reads and makes what a GF100 keeps in memory for a channel, its instance block and
// its USERD, and what its registers report of faults. Package driver uses it for the card's own
// channels, and the faces of guests for what a guest's driver wrote. Every field that reaches the card
// is named here; all other bits of the guest's memory have no effect.
//
// The functions are pure. What they return is the guest's word: the caller checks that addresses are
// the guest's.
package structs

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Instance is an instance block as its guest wrote it.
//
// Not read are GP_PUT (USERD has it), PB_GET (a channel begins at an entry of its ring), and
// the pointer to the graphics context (the card keeps contexts of its own).
type Instance struct {
	USERD       uint64 // address, in the guest's VRAM
	USERDTarget shadowpt.Target
	Space       shadowpt.Space
	Ring        card.Ring
	State       card.State // the Token is what SavedWords wrote, or made up by the guest
}

// ReadInstance reads an instance block of gf100.InstanceSize bytes.
func ReadInstance(b []byte) Instance {
	userd, target := gf100.InstanceUSERD(b)
	return Instance{
		USERD: userd, USERDTarget: shadowpt.Target(target),
		Space: ReadSpace(b),
		Ring: card.Ring{
			Base: uint64(gf100.InstGPBaseHi.Get(b))<<32 | uint64(gf100.InstGPBaseLo.Get(b))<<3,
			Log2: gf100.InstGPLimit2.Get(b),
		},
		State: ReadState(b),
	}
}

// ReadState reads what an instance block keeps of a channel that is off the card.
func ReadState(b []byte) card.State {
	return card.State{
		GPGet: gf100.InstGPGet.Get(b), Ref: gf100.InstRef.Get(b),
		Token: uint64(gf100.InstTokenHi.Get(b))<<32 | uint64(gf100.InstTokenLo.Get(b)),
	}
}

// ReadSpace reads the address space from an instance block.
func ReadSpace(b []byte) shadowpt.Space {
	dir, target, limit := gf100.InstanceSpace(b)
	return shadowpt.Space{Dir: dir, Target: shadowpt.Target(target), Limit: limit}
}

// A Word is a word of a structure in a guest's memory.
type Word struct {
	Offset uint64
	Value  uint32
}

// SavedWords are the words of an instance block that the card writes when a channel leaves it.
func SavedWords(s card.State) []Word {
	var list []Word
	for _, f := range []struct {
		gf100.Word
		v uint32
	}{{gf100.InstGPGet, s.GPGet}, {gf100.InstRef, s.Ref}, {gf100.InstTokenLo, uint32(s.Token)}, {gf100.InstTokenHi, uint32(s.Token >> 32)}} {
		list = append(list, Word{uint64(f.Offset), f.v})
	}
	return list
}

// ProgressWords are the words of USERD that the card writes and the guest reads.
func ProgressWords(p card.Progress) [6]Word {
	return [...]Word{
		{gf100.USERDGet, uint32(p.Get)}, {gf100.USERDGetHi, uint32(p.Get >> 32)},
		{gf100.USERDTopLevelGet, uint32(p.TopLevelGet)}, {gf100.USERDTopLevelGetHi, uint32(p.TopLevelGet >> 32)},
		{gf100.USERDRef, p.Ref}, {gf100.USERDGPGet, p.GPGet},
	}
}

// ReadUSERD reads the beginning of a USERD page, up to GP_PUT.
func ReadUSERD(b []byte) (p card.Progress, put uint32) {
	word := func(off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
	return card.Progress{
		Get:         uint64(word(gf100.USERDGetHi))<<32 | uint64(word(gf100.USERDGet)),
		TopLevelGet: uint64(word(gf100.USERDTopLevelGetHi))<<32 | uint64(word(gf100.USERDTopLevelGet)),
		Ref:         word(gf100.USERDRef), GPGet: word(gf100.USERDGPGet),
	}, word(gf100.USERDGPPut)
}
