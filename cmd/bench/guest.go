package bench

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var le = binary.LittleEndian

var errBytes = errors.New("the bytes that came back are not those that were sent")

// Virtual addresses of a guest's buffers.
const (
	vaSource = 0x10_0000_0000
	vaVRAM   = 0x11_0000_0000
	vaBack   = 0x12_0000_0000
	vaWork   = 0x13_0000_0000
	vaWork2  = 0x14_0000_0000
	vaSem    = 0x15_0000_0000
	vaTables = 0x20_0000_0000
)

// patience bounds all waits of a guest. Naive set-ups are slow, not dead.
const patience = time.Minute

// settle waits until posted writes have been handled: a read is behind them.
func settle(g *guest.Guest) { must(g.Sync(), g.Raw().Read(0, 0, make([]byte, 4))) }

// buffer is memory with its address in an address space.
type buffer struct {
	*guest.Buffer
	va    uint64
	flags guest.Flags
}

const bigPage = 128 << 10

// mapped makes a buffer in VRAM or in RAM and maps it.
func mapped(g *guest.Guest, s *guest.Space, va, size uint64, ram bool) buffer {
	b := buffer{va: va, flags: guest.Big}
	if ram {
		b.Buffer, b.flags = get(g.AllocRAM(size)), guest.Small
	} else {
		b.Buffer = get(g.AllocVRAM((size + bigPage - 1) &^ (bigPage - 1)))
	}
	must(s.Map(va, b.Buffer, b.flags))
	return b
}

// pattern fills p with pseudo-random bytes.
func pattern(p []byte, seed uint64) {
	var key [32]byte
	le.PutUint64(key[:], seed)
	rand.NewChaCha8(key).Read(p) // never fails
}

// pick returns the small or the full parameters of a run.
func pick[T any](quick bool, small, full T) T {
	if quick {
		return small
	}
	return full
}

// median sorts values. It is the upper one of two.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
