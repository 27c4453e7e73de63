// Package launches keeps launches of real programs for tests of executors. Command tests/shim/cmd/launches makes such files.
//
// The package has no locks or goroutines.
package launches

import (
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
)

const pageSize = 4096

var errUnmapped = errors.New("not mapped")

// A Launch is one of a real program: all that it read and wrote, as it was before.
type Launch struct {
	interp.Launch
	Base  uint64            // of its code
	Pages map[uint64][]byte // by address
}

// Write stores launches.
func Write(w io.Writer, list []*Launch) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return cmp.Or(gob.NewEncoder(z).Encode(list), z.Close())
}

// Read reads what Write stored.
func Read(file string) (list []*Launch, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	if err := gob.NewDecoder(z).Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

// On makes the launch one on a memory, which has its pages.
func (l *Launch) On(m interp.Memory) *interp.Launch {
	out := l.Launch
	out.Memory, out.Program = m, &interp.Program{Memory: m, Base: l.Base}
	return &out
}

// Copy is a copy of the pages, as memory.
func (l *Launch) Copy() Pages {
	p := make(Pages, len(l.Pages))
	for addr, b := range l.Pages {
		p[addr] = append([]byte(nil), b...)
	}
	return p
}

// Pages is an address space of pages.
type Pages map[uint64][]byte

// Bytes implements simd.Pages.
func (p Pages) Bytes(addr uint64, n int, _ bool) ([]byte, error) {
	b := p[addr&^(pageSize-1)]
	if b == nil {
		return nil, errUnmapped
	}
	b = b[addr%pageSize:]
	return b[:min(n, len(b))], nil
}

// Load implements interp.Memory.
func (p Pages) Load(addr uint64, to []byte) error {
	for len(to) > 0 {
		b, err := p.Bytes(addr, len(to), false)
		if err != nil {
			return err
		}
		addr, to = addr+uint64(len(b)), to[copy(to, b):]
	}
	return nil
}

// Store implements interp.Memory.
func (p Pages) Store(addr uint64, from []byte) error {
	for len(from) > 0 {
		b, err := p.Bytes(addr, len(from), true)
		if err != nil {
			return err
		}
		addr, from = addr+uint64(len(b)), from[copy(b, from):]
	}
	return nil
}

// Update implements interp.Memory.
func (p Pages) Update(addr uint64, size int, f func(uint64) uint64) (uint64, error) {
	var buf [8]byte
	if err := p.Load(addr, buf[:size]); err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(buf[:])
	binary.LittleEndian.PutUint64(buf[:], f(old))
	return old, p.Store(addr, buf[:size])
}

// A Recorder is an executor that keeps each launch. It needs a card with one processor.
type Recorder struct {
	simd.Executor
	Launches []*Launch

	now    *Launch
	launch interp.Launch
	memory recorded
}

// Start implements sm.Executor.
func (r *Recorder) Start(l *interp.Launch) {
	r.now = &Launch{Launch: *l, Base: l.Program.Base, Pages: make(map[uint64][]byte)}
	r.now.Memory, r.now.Units, r.now.Program = nil, nil, nil
	r.Launches = append(r.Launches, r.now)
	pages, _ := l.Memory.(simd.Pages)
	r.memory = recorded{l.Memory, pages, r.now}
	r.launch = *l
	r.launch.Memory = r.memory
	r.launch.Program = &interp.Program{Memory: r.memory, Base: l.Program.Base}
	r.Executor.Start(&r.launch)
}

// Step implements sm.Executor.
func (r *Recorder) Step(b *interp.Block, budget int) (int, *interp.Fault) {
	l := b.Launch
	r.launch.Local, r.now.Local = l.Local, l.Local
	b.Launch = &r.launch
	defer func() { b.Launch = l }()
	return r.Executor.Step(b, budget)
}

// recorded keeps what pages were before the launch reached them.
type recorded struct {
	interp.Memory
	pages  simd.Pages
	launch *Launch
}

func (m recorded) note(addr uint64, n int) {
	for at := addr &^ (pageSize - 1); at < addr+uint64(n); at += pageSize {
		if m.launch.Pages[at] == nil {
			var page [pageSize]byte
			if m.Memory.Load(at, page[:]) == nil {
				m.launch.Pages[at] = page[:]
			}
		}
	}
}

func (m recorded) Bytes(addr uint64, n int, write bool) ([]byte, error) {
	m.note(addr, n)
	return m.pages.Bytes(addr, n, write)
}

func (m recorded) Load(addr uint64, to []byte) error {
	m.note(addr, len(to))
	return m.Memory.Load(addr, to)
}

func (m recorded) Store(addr uint64, from []byte) error {
	m.note(addr, len(from))
	return m.Memory.Store(addr, from)
}

func (m recorded) Update(addr uint64, size int, f func(uint64) uint64) (uint64, error) {
	m.note(addr, size)
	return m.Memory.Update(addr, size, f)
}
