package jit

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
)

// Slots is how many blocks are under way at a time at most, and slotBytes the memory for each. Larger blocks stay in
// the server.
const (
	Slots     = engine.MaxProcessors
	slotBytes = 1 << 20
	slotsAt   = 4096
	sharedLen = slotsAt + Slots*slotBytes

	magic = 0x54494a41524d55 // "UMRAJIT"
)

// head is at the start of the shared memory.
type head struct {
	Magic, Version uint64
	// Began is set by the process before it runs the first instruction of a step.
	Began atomic.Uint32
	_     [44]byte
	Work  state.Work
}

// Shared is the memory that a process shares with the server.
type Shared struct {
	*head
	mem []byte
}

// newShared makes the memory, and its file. The process cannot shrink it.
func newShared() (*Shared, *os.File, error) {
	fd, err := unix.MemfdCreate("umbra-jit", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("create a memory file for blocks: %w", err)
	}
	f := os.NewFile(uintptr(fd), "umbra-jit")
	if err = f.Truncate(sharedLen); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var s *Shared
	if err == nil {
		s, err = mapShared(f)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("memory for blocks: %w", err)
	}
	s.Magic, s.Version = magic, Version
	return s, f, nil
}

// OpenShared maps the memory in the process.
func OpenShared(f *os.File) (*Shared, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != sharedLen {
		return nil, fmt.Errorf("shared memory of %d bytes: want %d", info.Size(), sharedLen)
	}
	s, err := mapShared(f)
	if err == nil && (s.Magic != magic || s.Version != Version) {
		return nil, fmt.Errorf("shared memory of version %d: want %d", s.Version, Version)
	}
	return s, err
}

func mapShared(f *os.File) (*Shared, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, sharedLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Shared{headOf(mem), mem}, nil
}

// Slot is the memory of a slot.
func (s *Shared) Slot(n int) []byte { return s.mem[slotsAt+n*slotBytes:][:slotBytes:slotBytes] }

func (s *Shared) close() { _ = unix.Munmap(s.mem) }
