package fakecard

import "github.com/umbra-gpu/umbra/aggregator/card"

const pageSize = 4096

// Memory is a card's memory whose pages can be relocated: each is in Bytes, or in a file, which
// is read and written without a mapping. Calls must not be concurrent.
type Memory struct {
	Bytes []byte
	away  map[uint64]card.Relocation // by address of the page
}

// NewMemory makes memory of so many bytes, a multiple of the page size. It backs every page itself.
func NewMemory(size uint64) *Memory {
	return &Memory{Bytes: make([]byte, size), away: make(map[uint64]card.Relocation)}
}

// Read reads what is at addr, wherever it is. It panics beyond the end.
func (m *Memory) Read(addr uint64, p []byte) {
	each(addr, p, func(page, off uint64, p []byte) {
		if at, ok := m.away[page]; ok {
			must(at.To.ReadAt(p, int64(at.Off+off)))
			return
		}
		copy(p, m.Bytes[page+off:])
	})
}

// Write is the reverse of Read.
func (m *Memory) Write(addr uint64, p []byte) {
	each(addr, p, func(page, off uint64, p []byte) {
		if at, ok := m.away[page]; ok {
			must(at.To.WriteAt(p, int64(at.Off+off)))
			return
		}
		copy(m.Bytes[page+off:], p)
	})
}

// each does something with the part of p in each page.
func each(addr uint64, p []byte, do func(page, off uint64, p []byte)) {
	for len(p) > 0 {
		off := addr % pageSize
		n := min(uint64(len(p)), pageSize-off)
		do(addr-off, off, p[:n])
		addr, p = addr+n, p[n:]
	}
}

// Relocate is card.Relocator's. It refuses nothing.
func (m *Memory) Relocate(r card.Relocation) (done uint64, err error) {
	p, zero := make([]byte, pageSize), make([]byte, pageSize)
	for ; done < r.Size; done += pageSize {
		page := r.Addr + done
		from, was := m.away[page]
		m.Read(page, p)
		delete(m.away, page)
		if r.To != nil {
			m.away[page] = card.Relocation{To: r.To, Off: r.Off + done}
		}
		if r.NoCopy {
			continue
		}
		m.Write(page, p)
		if was {
			must(from.To.WriteAt(zero, int64(from.Off)))
		}
	}
	return done, nil
}

func must(_ int, err error) {
	if err != nil {
		panic(err)
	}
}
