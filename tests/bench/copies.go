package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// routes are the ways between the two memories, with where they start and end.
var routes = []struct {
	name     string
	src, dst uint64
}{
	{"VRAM to VRAM", vaVRAMSrc, vaVRAMDst},
	{"guest to VRAM", vaRAMSrc, vaVRAMDst},
	{"VRAM to guest", vaVRAMSrc, vaRAMDst},
	{"guest to guest", vaRAMSrc, vaRAMDst},
}

// copySizes are measured on every route. The target is for 1 MiB and more.
var copySizes = []uint64{64 << 10, 1 << 20, 16 << 20, 64 << 20}

const targetFrom = 1 << 20

// A measurement is the best of some turns of so many bytes, copy()'s and the engine's
// one after the other: on a busy machine the other turns measure the neighbours.
const (
	turns      = 4
	sliceBytes = 16 << 20
)

var nearCopy = atLeast(0.80, ">= 0.80")

// copies measures each engine of a card in this process against copy().
func (b *bench) copies(ctx context.Context) error {
	b.section().Notes = []string{
		"ratios: bytes per time of the engine, from doorbell to interrupt, by those of copy() between the same",
		"kind of memory, each the best of four in turns; guest memory is mapped in pages of 4 KiB, VRAM of 128 KiB",
	}
	return b.copiesOf(ctx, soft.Config{}, copySizes)
}

func (b *bench) copiesOf(ctx context.Context, cfg soft.Config, sizes []uint64) (err error) {
	d, err := newDriver(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	d.fill()
	// What copy() copies is memory of the kind that the card copies: two areas of a
	// memory file.
	plain, err := memory("plain", 2*areaSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(plain)) }()
	copy(plain, d.bus.mem[ramSrc:ramSrc+areaSize])

	for _, size := range sizes {
		var floor []float64
		ratios := map[string][]float64{}
		var names []string
		for range b.repeat {
			for _, m := range movers {
				for _, r := range routes {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					rounds := max(1, int(sliceBytes/size))
					fast, took := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
					for range turns {
						fast = min(fast, floorOf(plain, size, rounds))
						t, err := d.copyTimes(&m, r.src, r.dst, size, rounds)
						if err != nil {
							return fmt.Errorf("%s, %s, %s: %w", m.name, r.name, kib(size), err)
						}
						took = min(took, t)
					}
					name := fmt.Sprintf("%s, %s, %s", m.name, r.name, kib(size))
					if ratios[name] == nil {
						names = append(names, name)
					}
					ratios[name] = append(ratios[name], float64(fast)/float64(took))
					floor = append(floor, float64(size)*float64(rounds)/float64(fast))
				}
			}
		}
		b.add("copy() of "+kib(size), bandwidth, floor)
		for _, name := range names {
			if size >= targetFrom {
				b.add("  "+name, ratio, ratios[name], nearCopy)
			} else {
				b.add("  "+name, ratio, ratios[name])
			}
		}
	}
	return nil
}

func kib(n uint64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// fill puts random bytes into both sources.
func (d *driver) fill() {
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(d.bus.mem[ramSrc : ramSrc+areaSize]) // it never fails
	buf := make([]byte, areaSize)
	_, _ = r.Read(buf)
	d.card.WriteVRAM(vramSrc, buf)
}

// floorOf copies size bytes rounds times.
func floorOf(mem []byte, size uint64, rounds int) time.Duration {
	at := time.Now()
	for range rounds {
		copy(mem[areaSize:areaSize+size], mem[:size])
	}
	return time.Since(at)
}

// copyTimes has the card copy size bytes rounds times in one submission, and sees
// that they arrived.
func (d *driver) copyTimes(m *mover, src, dst, size uint64, rounds int) (time.Duration, error) {
	d.wipe(dst, size)
	words := incr(2, 0, m.object)
	once := m.words(src, dst, size)
	for range rounds {
		words = append(words, once...)
	}
	before := d.card.Stats().Engine.Class(m.class).Bytes.Load()
	took, err := d.submit(words)
	if err != nil {
		return 0, err
	}
	if moved := d.card.Stats().Engine.Class(m.class).Bytes.Load() - before; moved != size*uint64(rounds) {
		return 0, fmt.Errorf("the card moved %d bytes, want %d", moved, size*uint64(rounds))
	}
	if !bytes.Equal(d.area(src, size), d.area(dst, size)) {
		return 0, errors.New("the bytes that arrived are not those that were sent")
	}
	return took, nil
}

// area returns the bytes of a data area: guest memory itself, or a copy of VRAM.
func (d *driver) area(va, n uint64) []byte {
	switch va {
	case vaRAMSrc:
		return d.bus.mem[ramSrc : ramSrc+n]
	case vaRAMDst:
		return d.bus.mem[ramDst : ramDst+n]
	}
	p := make([]byte, n)
	d.card.ReadVRAM(map[uint64]uint64{vaVRAMSrc: vramSrc, vaVRAMDst: vramDst}[va], p)
	return p
}

// wipe makes a destination zero. Its pages stay, so that no copy pays for them.
func (d *driver) wipe(va, n uint64) {
	if va == vaRAMDst {
		clear(d.bus.mem[ramDst : ramDst+n])
		return
	}
	d.card.WriteVRAM(vramDst, make([]byte, n))
}
