// Package inside has the scenarios that need no virtual machine: a GF100 driver in this process
// (devmodel/guest) attaches to the set-up's socket as QEMU does, and does what drivers and their
// programs do. It verifies what it moves.
//
// Busy work is copies inside VRAM by a copy engine, of the same number of bytes with every set-up.
//
// The guests of a case belong to the goroutine that runs it. Only the crowd has one goroutine for
// each guest, and waits for all. The package has no locks.
package inside

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

// Scenarios in the order in which they run.
var Scenarios = []scene.Scenario{
	probe, suspend, contexts, copies, program, submit, doorbell, tables, growth, crowd, neighbour, traps, transport,
}

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
func settle(g *guest.Guest) error {
	if err := g.Sync(); err != nil {
		return err
	}
	var b [4]byte
	return g.Raw().Read(0, 0, b[:])
}

// alone is a case in which a new guest attaches, does something and leaves.
func alone(name string, ram uint64, do func(t *scene.Take, g *guest.Guest) error) scene.Case {
	return scene.Case{Name: name, Shape: setup.Common, Run: func(ctx context.Context, t *scene.Take) error {
		g, err := t.Server.Endpoints[0].Attach(ctx, guest.Config{RAM: ram, Timeout: patience})
		if err != nil {
			return err
		}
		if err = settle(g); err == nil {
			err = do(t, g)
		}
		return errors.Join(err, g.Close())
	}}
}

// buffer is memory with its address in an address space.
type buffer struct {
	*guest.Buffer
	va    uint64
	flags guest.Flags
}

const bigPage = 128 << 10

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

// size writes a number of bytes as part of a case's name.
func size(n uint64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// pick returns the small or the full parameters of a run.
func pick[T any](p scene.Params, quick, full T) T {
	if p.Quick {
		return quick
	}
	return full
}
