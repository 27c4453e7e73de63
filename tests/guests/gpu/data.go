package gpu

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// patience is for what is waited for at all; only a failure uses it up.
const patience = time.Minute

// word is a 32-bit word that the GPU writes while the CPU looks.
func word(m []byte, off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&m[off])) }

// random is a stream of bytes with a seed: SplitMix64.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill writes the stream of a seed over b.
func fill(b []byte, seed uint64) {
	r := random(bits.RotateLeft64(seed, 17) ^ 0x5ca1ab1e)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.next())
		b = b[8:]
	}
	if len(b) > 0 {
		var tail [8]byte
		binary.LittleEndian.PutUint64(tail[:], r.next())
		copy(b, tail[:])
	}
}

// complement fills dst with what src is not, in every byte.
func complement(dst, src []byte) {
	i := 0
	for ; i+8 <= len(src); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], ^binary.LittleEndian.Uint64(src[i:]))
	}
	for ; i < len(src); i++ {
		dst[i] = ^src[i]
	}
}

// differ counts the bytes in which a and b differ and finds the first.
func differ(got, want []byte) (wrong int, first int64) {
	first = -1
	for i := range want {
		if got[i] != want[i] {
			if wrong == 0 {
				first = int64(i)
			}
			wrong++
		}
	}
	return wrong, first
}
