// Package inside has the scenarios that need no virtual machine: a GF100 driver
// in this process (tests/guest) attaches to the set-up's socket as QEMU does, and
// does what drivers and their programs do. What it moves is verified.
//
// A GPU here runs no programs yet, so "busy work" is copies inside VRAM by a copy
// engine, of a length that was calibrated on the whole card to take so many
// milliseconds: the same bytes with every set-up.
//
// The guests of a case belong to the goroutine that runs it, but for the crowd's,
// which has a goroutine for each guest and waits for all of them. No locks.
package inside

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/tests/guest"
)

// Scenarios in the order in which they run.
var Scenarios = []scene.Scenario{
	probe, suspend, contexts, copies, program, storm, doorbell, bells, tables, growth, crowd, neighbour,
}

// Where a case's guest has its buffers.
const (
	vaSource = 0x10_0000_0000
	vaVRAM   = 0x11_0000_0000
	vaBack   = 0x12_0000_0000
	vaWork   = 0x13_0000_0000
	vaWork2  = 0x14_0000_0000
	vaSem    = 0x15_0000_0000
)

// settle ends a phase: what was posted has been handled, because a read behind it
// has been.
func settle(g *guest.Guest) error {
	if err := g.Sync(); err != nil {
		return err
	}
	var b [4]byte
	return g.Raw().Read(0, 0, b[:])
}

// attach has a new guest attach to the take's GPU, do something and leave.
func attach(ctx context.Context, t *scene.Take, cfg guest.Config, do func(g *guest.Guest) error) error {
	g, err := t.Seat().Attach(ctx, cfg)
	if err != nil {
		return err
	}
	if err = settle(g); err == nil {
		err = do(g)
	}
	return errors.Join(err, g.Close())
}

// buffer is memory with its place in an address space.
type buffer struct {
	*guest.Buffer
	va    uint64
	flags guest.Flags
}

// mapped makes a buffer in VRAM or in RAM and maps it.
func mapped(g *guest.Guest, s *guest.Space, va, size uint64, ram bool) (buffer, error) {
	b := buffer{va: va, flags: guest.Big}
	alloc := g.AllocVRAM
	if ram {
		alloc, b.flags = g.AllocRAM, guest.Small
	} else {
		size = (size + bigPage - 1) &^ (bigPage - 1)
	}
	var err error
	if b.Buffer, err = alloc(size); err != nil {
		return b, err
	}
	return b, s.Map(va, b.Buffer, b.flags)
}

const bigPage = 128 << 10

// unmap takes buffers out of an address space.
func unmap(s *guest.Space, buffers ...buffer) error {
	var errs []error
	for _, b := range buffers {
		errs = append(errs, s.Unmap(b.va, b.Size, b.flags))
	}
	return errors.Join(errs...)
}

// pattern fills p with bytes that repeat nowhere near.
func pattern(p []byte, seed uint64) {
	x := seed*2 + 1
	for i := range p {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x >> 32)
	}
}

// size writes a number of bytes for a person.
func size(n uint64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// patience is for everything that a guest here waits for. Naive set-ups are slow,
// not dead.
const patience = time.Minute

// perSecond is n in a time as a rate.
func perSecond(n float64, ns float64) float64 { return n / ns * 1e9 }

// pick returns the small or the full parameters of a run.
func pick[T any](run report.Run, quick, full T) T {
	if run.Quick {
		return quick
	}
	return full
}
