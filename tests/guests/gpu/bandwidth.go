package gpu

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Bandwidth compares the processor's bandwidth to VRAM through the BARs with that to its
// own memory. BAR1 shows an unused buffer. BAR3 shows the driver's own memory, which is
// written with its own content, so the driver must be idle.
func (e *Env) Bandwidth(a proto.BandwidthArgs) (res proto.BandwidthResult, err error) {
	n := orInt(a.Bytes, 16<<10)
	if n < 4096 || n > 1<<20 || n%4096 != 0 {
		return res, fmt.Errorf("%d bytes: want whole pages of 4096, and 1 MiB at most", n)
	}
	w := window{limit: time.Duration(orInt(a.BARMS, 500)) * time.Millisecond, ram: make([]uint64, n/8), sink: new(uint64)}
	dev, err := e.Open()
	if err != nil {
		return res, err
	}
	defer closeInto(dev, &err)
	b, err := dev.NewBuffer(uint64(n), drm.DomainVRAM)
	if err != nil {
		return res, err
	}
	defer closeInto(b, &err)
	m, err := b.Bytes()
	if err != nil {
		return res, err
	}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&m[0])), n/8)
	for i := range words {
		words[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	bar1, err := w.measure("bar1", words)
	if err != nil {
		return res, err
	}
	res.Windows = append(res.Windows, bar1)
	bar3, err := e.bar3(w)
	if err != nil {
		res.Skipped = append(res.Skipped, "bar3: "+err.Error())
		return res, nil
	}
	res.Windows = append(res.Windows, bar3)
	return res, nil
}

// bar3Searched is the part of BAR3 that is searched for content. Drivers allocate it from
// below.
const bar3Searched = 16 << 20

func (e *Env) bar3(w window) (res proto.WindowBandwidth, err error) {
	regs, done, err := e.BAR(3, bar3Searched)
	if err != nil {
		return res, err
	}
	defer done()
	// Find the longest run of pages with content, up to the wanted size. Unmapped pages read
	// as zeros.
	most := len(w.ram) * 2
	first, n, run := 0, 0, 0
	for at := 0; at < len(regs) && n < most; at += pageWords {
		if run += pageWords; !shown(regs[at : at+pageWords]) {
			run = 0
		}
		if run > n {
			first, n = at+pageWords-run, run
		}
	}
	if n == 0 {
		return res, fmt.Errorf("its first %d MiB are empty", bar3Searched>>20)
	}
	return w.measure("bar3", unsafe.Slice((*uint64)(unsafe.Pointer(&regs[first])), n/2))
}

const pageWords = 1024

// shown reports whether a page has content, from a sample of its words.
func shown(page []uint32) bool {
	for i := 0; i < len(page); i += 128 {
		if atomic.LoadUint32(&page[i]) != 0 {
			return true
		}
	}
	return false
}

// window holds the options of a measurement.
type window struct {
	limit time.Duration
	ram   []uint64
	sink  *uint64 // keeps the compiler from dropping loads
}

// maxRounds bounds one measurement.
const maxRounds = 31

// leastSample is the minimum time of one sample: fast accesses are repeated.
const leastSample = time.Millisecond

// measure alternates between both memories. It stores the content that was there, and
// checks at the end that it still is.
func (w *window) measure(name string, words []uint64) (res proto.WindowBandwidth, err error) {
	want, ram := make([]uint64, len(words)), w.ram[:len(words)]
	load(want, words)
	load(ram, want)
	// The accesses, in their order in a round.
	ways := []struct {
		do    func()
		times int
		bps   []float64
	}{
		{do: func() { *w.sink += sum(ram) }}, {do: func() { *w.sink += sum(words) }},
		{do: func() { load(ram, want) }}, {do: func() { load(words, want) }},
	}
	for i := range ways {
		start := time.Now()
		ways[i].do()
		ways[i].times = 1 + int(leastSample/(time.Since(start)+1))
	}
	began := time.Now()
	for round := 0; round < maxRounds && (round < 3 || time.Since(began) < w.limit); round++ {
		for i := range ways {
			start := time.Now()
			for range ways[i].times {
				ways[i].do()
			}
			ways[i].bps = append(ways[i].bps, float64(8*len(words)*ways[i].times)/time.Since(start).Seconds())
		}
	}
	res.Window = name
	res.RAMReadBps, res.ReadBps, res.RAMWriteBps, res.WriteBps = middle(ways[0].bps), middle(ways[1].bps), middle(ways[2].bps), middle(ways[3].bps)
	for i, v := range words {
		if v != want[i] {
			return res, fmt.Errorf("%s: word %d of 8 bytes is %#x, and was %#x", name, i, v, want[i])
		}
	}
	return res, nil
}

// load copies words one at a time. copy would choose other widths.
//
//go:noinline
func load(dst, src []uint64) {
	for i := range dst {
		dst[i] = src[i]
	}
}

//go:noinline
func sum(words []uint64) (s uint64) {
	for _, v := range words {
		s += v
	}
	return s
}

func middle(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
