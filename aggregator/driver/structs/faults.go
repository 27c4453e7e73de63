package structs

import (
	"math/bits"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Number returns the chip's number of an engine. A card of another chip may have more copy engines:
// they count as the last.
func Number(e card.Engine) int { return gf100.Executing[min(int(e), len(gf100.Executing)-1)] }

// Engine returns the engine that the chip counts as number n, false if that executes nothing.
func Engine(n int) (card.Engine, bool) {
	e := slices.Index(gf100.Executing[:], n)
	return card.Engine(e), e >= 0
}

// EngineSet returns the engines of a mask in which the chip counts them. Bits returns such a mask.
func EngineSet(mask uint32) (s card.EngineSet) {
	for e, n := range gf100.Executing {
		s |= card.EngineSet(mask>>n&1) << e
	}
	return s
}

// Bits is the reverse of EngineSet.
func Bits(s card.EngineSet) (mask uint32) {
	for ; s != 0; s &= s - 1 {
		mask |= 1 << Number(card.Engine(bits.TrailingZeros32(uint32(s))))
	}
	return mask
}

// clients are who accesses memory.
var clients = [...]struct {
	engine  card.Engine
	program bool
	gf100.MMUClient
}{
	{card.NoEngine, false, gf100.ClientHost},
	{card.Graphics, false, gf100.ClientGR}, {card.Graphics, true, gf100.ClientTEX},
	{card.Copy0, false, gf100.ClientCE0}, {card.Copy0 + 1, false, gf100.ClientCE1},
}

// ReadMMUFault reads a fault from the registers.
func ReadMMUFault(f gf100.MMUFault) card.Fault {
	out := card.Fault{Kind: card.Translation, Engine: card.NoEngine, VA: f.VA, Write: f.Write(), Reason: shadowpt.Reason(f.Reason())}
	for _, c := range clients {
		if c.Slot == f.Unit && c.GPC == f.GPC() {
			out.Engine, out.Program = c.engine, c.program
		}
	}
	return out
}

// MMUFault is the fault as the registers show it to the owner of the instance block at inst.
func MMUFault(f card.Fault, inst uint64) gf100.MMUFault {
	from := clients[0]
	for _, c := range clients {
		if c.engine == f.Engine && c.program == f.Program {
			from = c
		}
	}
	return from.Fault(inst, f.VA, f.Write, uint8(f.Reason))
}

// kinds are the bits of an interrupt register. The first is a fault's kind if no bit is known.
type kinds []struct {
	bit  uint32
	kind card.Kind
}

var (
	pbdmaKinds = kinds{ // NV_PPBDMA_INTR_0
		{gf100.PBDMAIntrPBEntry, card.BadHeader}, {gf100.PBDMAIntrGPPtr, card.BadPointer}, {gf100.PBDMAIntrGPEntry, card.BadEntry},
		{gf100.PBDMAIntrMethod, card.NoMethod}, {gf100.PBDMAIntrEmptySubch, card.SoftwareMethod}, {gf100.PBDMAIntrSemaphore, card.BadSemaphore},
	}
	graphKinds = kinds{ // NV_PGRAPH_INTR
		{gf100.GraphIntrIllegalMthd, card.BadMethod}, {gf100.GraphIntrIllegalClass, card.BadClass},
		{gf100.GraphIntrDataError, card.BadData}, {gf100.GraphIntrTrap, card.ProgramError},
	}
)

func (list kinds) of(intr uint32) card.Kind {
	k := list[0].kind
	for _, r := range list {
		if intr&r.bit != 0 {
			k = r.kind
		}
	}
	return k
}

func (list kinds) bit(k card.Kind) (bit uint32) {
	for _, r := range list {
		if r.kind == k {
			bit = r.bit
		}
	}
	return bit
}

// ReadPBDMAError reads what a PBDMA could not pass on.
func ReadPBDMAError(e gf100.PBDMAError) card.Fault {
	return card.Fault{
		Kind: pbdmaKinds.of(e.Intr), Engine: card.NoEngine,
		Subchannel: uint8(e.Method >> 16 & 7), Method: e.Method & 0xffff, Data: e.Data,
	}
}

// PBDMAError is the fault as a PBDMA shows it.
func PBDMAError(f card.Fault, channel uint8) gf100.PBDMAError {
	return gf100.PBDMAError{Channel: channel, Intr: pbdmaKinds.bit(f.Kind), Method: uint32(f.Subchannel)<<16 | f.Method, Data: f.Data}
}

// ReadGraphTrap reads a method that the graphics engine refused.
func ReadGraphTrap(t gf100.GraphTrap) card.Fault {
	f := card.Fault{Kind: graphKinds.of(t.Intr), Engine: card.Graphics, Subchannel: t.Subchannel, Class: t.Class, Method: t.Method, Data: t.Data}
	switch f.Kind {
	case card.BadData:
		f.Code = uint64(t.DataError)
	case card.ProgramError:
		f.Code = uint64(t.MP.Global)<<32 | uint64(t.MP.Warp)
	}
	return f
}

// GraphTrap is the fault as the graphics engine shows it to the owner of the instance block at inst.
func GraphTrap(f card.Fault, inst uint64) gf100.GraphTrap {
	t := gf100.GraphTrap{Intr: graphKinds.bit(f.Kind), Inst: inst, Subchannel: f.Subchannel, Class: f.Class, Method: f.Method, Data: f.Data}
	switch f.Kind {
	case card.BadData:
		t.DataError = uint32(f.Code)
	case card.ProgramError:
		t.MP = gf100.MPError{Warp: uint32(f.Code), Global: uint32(f.Code >> 32)}
	}
	return t
}

// copyIllegal is a copy engine's status of a method that it does not have.
const copyIllegal = 1

// ReadCopyTrap reads a method that a copy engine refused.
func ReadCopyTrap(t gf100.CopyTrap) card.Fault {
	f := card.Fault{Kind: card.BadMethod, Engine: card.Copy0 + card.Engine(t.Engine), Subchannel: t.Subchannel, Method: t.Method, Data: t.Data}
	if t.Status != copyIllegal {
		f.Kind, f.Code = card.BadData, uint64(t.Status)
	}
	return f
}

// CopyTrap is the fault as a copy engine shows it to the owner of the instance block at inst.
func CopyTrap(f card.Fault, inst uint64) gf100.CopyTrap {
	t := gf100.CopyTrap{Engine: min(int(f.Engine-card.Copy0), gf100.CEs-1), Inst: inst, Subchannel: f.Subchannel, Method: f.Method, Data: f.Data, Status: copyIllegal}
	if f.Kind == card.BadData {
		t.Status = uint32(f.Code)
	}
	return t
}
