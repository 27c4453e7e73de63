package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// alone is a case in which a new guest attaches, does something and leaves.
func alone(name string, ram uint64, do func(t *take, g *guest.Guest)) testCase {
	return testCase{name: name, shape: common, run: func(t *take) { do(t, t.attach(0, ram)) }}
}

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
	x := seed*2 + 1
	for i := range p {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x >> 32)
	}
}

// bytesName writes a number of bytes as part of a case's name.
func bytesName(n uint64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
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

// quantiles adds the median and the 99th percentile of single times.
func quantiles(t *take, name string, each []float64) {
	t.metric(name+"-p50-ns", median(each))
	t.metric(name+"-p99-ns", each[len(each)*99/100])
}
