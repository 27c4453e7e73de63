package gf100

import "encoding/binary"

// Word is one field of an in-memory structure: a byte offset and a run of bits
// of the dword there.
type Word struct {
	Name   string
	Offset uint32
	Hi, Lo uint8
}

// Get returns the field from b, which must reach to its dword's end.
func (w Word) Get(b []byte) uint32 {
	v := binary.LittleEndian.Uint32(b[w.Offset:])
	return v >> w.Lo & (uint32(1)<<(w.Hi-w.Lo)<<1 - 1)
}

// Put stores v in the field and leaves the dword's other bits alone.
func (w Word) Put(b []byte, v uint32) {
	mask := (uint32(1)<<(w.Hi-w.Lo)<<1 - 1) << w.Lo
	old := binary.LittleEndian.Uint32(b[w.Offset:])
	binary.LittleEndian.PutUint32(b[w.Offset:], old&^mask|v<<w.Lo&mask)
}

// InstanceSize is the size of an instance block in bytes.
const InstanceSize = 0x1000

// The instance block: PFIFO's state of a channel (RAMFC, to 0x200), its address space and
// its engine contexts. Offsets below 0x200 follow NVIDIA's dev_ram.ref (NV_RAMFC) of later
// chips where Fermi is the same.
var (
	InstUSERDLo     = Word{"NV_RAMFC_USERD", 0x008, 31, 12}
	InstUSERDTarget = Word{"NV_RAMFC_USERD_TARGET", 0x008, 1, 0}
	InstUSERDHi     = Word{"NV_RAMFC_USERD_HI", 0x00c, 7, 0}
	InstSignature   = Word{"NV_RAMFC_SIGNATURE", 0x010, 15, 0}
	InstGPGet       = Word{"NV_RAMFC_GP_GET", 0x014, 31, 0}
	InstRef         = Word{"NV_RAMFC_REF", 0x028, 31, 0}
	InstGPBaseLo    = Word{"NV_RAMFC_GP_BASE", 0x048, 31, 3}
	InstGPBaseHi    = Word{"NV_RAMFC_GP_BASE_HI", 0x04c, 7, 0}
	InstGPLimit2    = Word{"NV_RAMFC_GP_LIMIT2", 0x04c, 20, 16} // log2 of the ring's entries
	InstPDBTarget   = Word{"NV_RAMIN_PAGE_DIR_BASE_TARGET", 0x200, 1, 0}
	InstPDBLo       = Word{"NV_RAMIN_PAGE_DIR_BASE_LO", 0x200, 31, 12}
	InstPDBHi       = Word{"NV_RAMIN_PAGE_DIR_BASE_HI", 0x204, 7, 0}
	InstLimitLo     = Word{"NV_RAMIN_ADR_LIMIT_LO", 0x208, 31, 12}
	InstLimitHi     = Word{"NV_RAMIN_ADR_LIMIT_HI", 0x20c, 7, 0}
)

// InstanceSpace reads the address space out of an instance block: its directory,
// the memory that lies in, and the last address.
func InstanceSpace(block []byte) (dir uint64, target uint8, limit uint64) {
	dir = uint64(InstPDBHi.Get(block))<<32 | uint64(InstPDBLo.Get(block))<<12
	limit = uint64(InstLimitHi.Get(block))<<32 | uint64(InstLimitLo.Get(block))<<12 | 0xfff
	return dir, uint8(InstPDBTarget.Get(block)), limit
}

// InstanceUSERD reads where a channel's USERD lies, and in which memory.
func InstanceUSERD(block []byte) (addr uint64, target uint8) {
	return uint64(InstUSERDHi.Get(block))<<32 | uint64(InstUSERDLo.Get(block))<<12, uint8(InstUSERDTarget.Get(block))
}

// The software card's own words in RAMFC, at offsets that drivers leave zero: a token
// for the saved state of an unbound channel, the owner of the channel when several
// guests share the card, and how many saved states that owner may have (0: one for
// each channel).
var (
	InstOwner   = Word{"UMBRA_RAMFC_OWNER", 0x1e8, 4, 0}
	InstKeep    = Word{"UMBRA_RAMFC_KEEP", 0x1e8, 15, 8}
	InstTokenLo = Word{"UMBRA_RAMFC_TOKEN_LO", 0x1e0, 31, 0}
	InstTokenHi = Word{"UMBRA_RAMFC_TOKEN_HI", 0x1e4, 31, 0}
)

// Owners is the number of owners of channels that InstOwner can represent.
const Owners = 32

// InstanceSignature is the value of NV_RAMFC_SIGNATURE in a channel that was set up.
const InstanceSignature = 0xface

// ChannelClass is the class of the chip's channels (NVIDIA cl906f.h).
const ChannelClass = 0x906f

// USERDSize is what one channel takes of the poll area, in bytes.
const USERDSize = 0x1000

// PollSize is the poll area: the pages of all channels, wherever in BAR1 it lies.
const PollSize = Channels * USERDSize

// USERD: a channel's page of the poll area. Offsets: NVIDIA cl906f.h
// (Nv906fControl).
const (
	USERDPut           = 0x40
	USERDGet           = 0x44
	USERDRef           = 0x48
	USERDPutHi         = 0x4c
	USERDTopLevelGet   = 0x58
	USERDTopLevelGetHi = 0x5c
	USERDGetHi         = 0x60
	USERDGPGet         = 0x88
	USERDGPPut         = 0x8c // writing it is the doorbell
)

// RunlistEntrySize is the size of a runlist entry in bytes; its first dword is
// the channel's number.
const RunlistEntrySize = 8

// GPEntrySize is the size of a GPFIFO entry in bytes.
const GPEntrySize = 8

// GPEntry is a GPFIFO entry taken apart (cl906f.h, NV906F_GP_ENTRY).
type GPEntry struct {
	VA     uint64 // of the segment's first dword
	Words  uint32 // length; 0 makes it a control entry
	Opcode uint8  // of a control entry
	Level  bool   // the segment is a subroutine, not the main level
}

// Opcodes of control entries.
const (
	GPOpNOP     = 0
	GPOpIllegal = 1
)

// DecodeGPEntry takes an entry apart.
func DecodeGPEntry(q uint64) GPEntry {
	lo, hi := uint32(q), uint32(q>>32)
	return GPEntry{
		VA:     uint64(hi&0xff)<<32 | uint64(lo&^3),
		Words:  hi >> 10 & 0x1fffff,
		Opcode: uint8(hi),
		Level:  hi>>9&1 != 0,
	}
}
