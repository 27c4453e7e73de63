package gf100

// HeaderKind defines the use of the data after a pushbuffer header.
type HeaderKind uint8

const (
	HeaderIncreasing    HeaderKind = iota // each word goes to the next method
	HeaderNonIncreasing                   // all words go to one method
	HeaderIncreaseOnce                    // the first to the method, the rest to the next one
	HeaderImmediate                       // the data is in the header
	HeaderSubDevMask                      // changes the sub-device mask
	HeaderEnd                             // ends the segment
	HeaderNOP
	HeaderInvalid
)

// MaskOp is the operation of a sub-device mask header.
type MaskOp uint8

const (
	MaskSet   MaskOp = 1 // the mask becomes the value
	MaskStore MaskOp = 2 // the value is kept for MaskUse
	MaskUse   MaskOp = 3 // the mask becomes the kept value
)

// Header is a pushbuffer header taken apart.
type Header struct {
	Kind       HeaderKind
	Subchannel uint8
	Method     uint16 // byte offset
	Count      uint16 // words that follow; 0 for immediate headers
	Data       uint16 // of an immediate header, or the sub-device mask
	MaskOp     MaskOp
}

// secOp is the meaning of bits 31:29 (cl906f.h, NV906F_DMA_SEC_OP). Codes 0 and 2 are older
// formats, which bits 17:16 distinguish.
var secOp = [8]HeaderKind{
	1: HeaderIncreasing,
	3: HeaderNonIncreasing,
	4: HeaderImmediate,
	5: HeaderIncreaseOnce,
	6: HeaderInvalid,
	7: HeaderEnd,
}

const (
	secGroup0 = 0
	secGroup2 = 2
)

// DecodeHeader takes a header apart. A zero dword is a no-operation.
func DecodeHeader(w uint32) Header {
	switch op := w >> 29; {
	case w == 0:
		return Header{Kind: HeaderNOP}
	case op == secGroup0 || op == secGroup2:
		return decodeOldHeader(w, op)
	default:
		h := Header{
			Kind:       secOp[op],
			Subchannel: uint8(w >> 13 & 7),
			Method:     uint16(w & 0xfff << 2),
			Count:      uint16(w >> 16 & 0x1fff),
		}
		if h.Kind == HeaderImmediate {
			h.Data, h.Count = h.Count, 0
		}
		return h
	}
}

// decodeOldHeader reads the formats of chips before Fermi, which bits 17:16
// extend by the sub-device masks.
func decodeOldHeader(w, op uint32) Header {
	tert := w >> 16 & 3
	if tert != 0 {
		if op == secGroup2 {
			return Header{Kind: HeaderInvalid}
		}
		return Header{Kind: HeaderSubDevMask, MaskOp: MaskOp(tert), Data: uint16(w >> 4 & 0xfff)}
	}
	if w&3 != 0 {
		return Header{Kind: HeaderInvalid} // jumps and calls, removed in Fermi
	}
	kind := HeaderIncreasing
	if op == secGroup2 {
		kind = HeaderNonIncreasing
	}
	return Header{
		Kind:       kind,
		Subchannel: uint8(w >> 13 & 7),
		Method:     uint16(w & 0x1ffc),
		Count:      uint16(w >> 18 & 0x7ff),
	}
}
