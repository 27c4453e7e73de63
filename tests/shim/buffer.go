package shim

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Buffer is memory with an address on the card.
type Buffer struct {
	Place
	offset uint64 // in the machine's memory
	mem    []byte
}

// Place is where the card has a buffer.
type Place struct {
	VA, Size uint64 // in whole pages
	InVRAM   bool
	Kind     uint8 // how the card's memory controller stores pages
}

// page is the size of the buffer's pages.
func (p *Place) page() uint64 {
	if p.InVRAM && (p.VA|p.Size)%shadowpt.BigPage == 0 {
		return shadowpt.BigPage
	}
	return shadowpt.SmallPage
}

// Alloc makes a buffer of zeros.
func (m *Machine) Alloc(p Place) (*Buffer, error) {
	b := &Buffer{Place: p}
	if p.Size == 0 || (p.VA|p.Size)%vram.PageSize != 0 {
		return nil, fmt.Errorf("buffer of %#x bytes at %#x: want whole pages", p.Size, p.VA)
	}
	target, addr := shadowpt.VRAM, uint64(0)
	if p.InVRAM {
		r, ok := m.vram.Take(p.Size, p.page())
		if !ok {
			return nil, fmt.Errorf("no VRAM left for a buffer of %d bytes", p.Size)
		}
		addr = r.Addr
		if _, err := m.card.Relocate(card.Relocation{Addr: addr, Size: p.Size, To: m.file, Off: addr, NoCopy: true}); err != nil {
			m.vram.Release(r)
			return nil, err
		}
		b.offset = addr
	} else {
		r, ok := m.system.Take(p.Size, vram.PageSize)
		if !ok {
			return nil, fmt.Errorf("no system memory left for a buffer of %d bytes", p.Size)
		}
		b.offset = r.Addr
		target, addr = shadowpt.SystemCoherent, r.Addr-cardMemory+busAddress
	}
	b.mem = m.mem[b.offset:][:p.Size]
	if err := m.change(card.Change{VA: p.VA, Size: p.Size, Page: p.page(), Target: target, Addr: addr, Kind: p.Kind, Flags: shadowpt.Mapped}); err != nil {
		return nil, errors.Join(err, m.Free(b))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.buffers[b.VA] = b
	return b, nil
}

// At returns n bytes of memory at an address of the card, nil if no buffer has them.
func (m *Machine) At(va, n uint64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.buffers {
		if va >= b.VA && n <= b.Size && va-b.VA <= b.Size-n {
			return b.mem[va-b.VA:][:n]
		}
	}
	return nil
}

// Free takes a buffer back. No channel may use it any more.
func (m *Machine) Free(b *Buffer) error {
	m.mu.Lock()
	delete(m.buffers, b.VA)
	m.mu.Unlock()
	if err := m.change(card.Change{VA: b.VA, Size: b.Size, Page: b.page()}); err != nil {
		return err
	}
	if b.InVRAM {
		if err := m.gpu.ScrubVRAM(b.offset, b.Size); err != nil {
			return err
		}
		m.vram.Release(card.Run{Addr: b.offset, Size: b.Size})
		return nil
	}
	clear(b.mem) // to punch it takes five times as long, and who has it next touches it
	m.system.Release(card.Run{Addr: b.offset, Size: b.Size})
	return nil
}

// change maps or unmaps, and returns when the card knows.
func (m *Machine) change(c card.Change) error {
	if _, err := m.space.Apply([]card.Change{c}); err != nil {
		return err
	}
	if !m.share.Invalidate(m.space) {
		return errors.New("the card did not complete an invalidate")
	}
	return nil
}
