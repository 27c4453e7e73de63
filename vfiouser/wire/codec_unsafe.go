package wire

import "unsafe"

// Fixed is a structure whose memory is the message's: the fields in the protocol's order,
// naturally aligned, on a little-endian machine.
type Fixed interface {
	Header | DMAMapRequest | DMAUnmapRequest | DeviceInfo | RegionInfo | RegionIO | IRQInfo | IRQSet |
		RegionAccess | DMAAccess | Feature | MigData
}

func bytesOf[T Fixed](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// Parse decodes the structure at the start of b, which has all of its bytes.
func Parse[T Fixed](b []byte) (v T) {
	p := bytesOf(&v)
	copy(p, b[:len(p)])
	return v
}

// Put encodes v into the first bytes of b, which has room for it.
func Put[T Fixed](b []byte, v T) {
	p := bytesOf(&v)
	copy(b[:len(p)], p)
}

// Append appends v to b.
func Append[T Fixed](b []byte, v T) []byte { return append(b, bytesOf(&v)...) }

// Message returns a whole message. It sets the header's size.
func Message(h Header, payload []byte) []byte {
	h.Size = uint32(HeaderSize + len(payload))
	return append(Append(make([]byte, 0, h.Size), h), payload...)
}
