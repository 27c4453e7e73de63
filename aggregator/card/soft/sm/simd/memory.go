package simd

// Pages is a Memory that shows itself. Bytes returns between 1 and n bytes at addr, which are the
// memory itself until the owner's next Begin, or an error.
type Pages interface {
	Bytes(addr uint64, n int, write bool) ([]byte, error)
}

const (
	pageSize = 4096
	pageMask = pageSize - 1
)

// memory remembers pages of the address space. Reading and writing are remembered separately:
// the owner of the memory has to know of writes.
type memory struct {
	pages Pages // nil: nothing is known
	known [2][64]page
}

type page struct {
	number uint64 // plus one; 0 is none
	bytes  []byte
}

func (m *memory) forget() {
	for i := range m.known {
		for j := range m.known[i] {
			m.known[i][j].number = 0
		}
	}
}

// at returns n bytes at addr, which lie in one page; nil if they have to be accessed otherwise.
func (m *memory) at(addr uint64, n int, write bool) []byte {
	p := m.page(addr>>12, write)
	if p == nil || addr&pageMask+uint64(n) > uint64(len(p)) {
		return nil
	}
	return p[addr&pageMask:][:n]
}

// page returns what is known of a page: its bytes, or fewer from its start on.
func (m *memory) page(number uint64, write bool) []byte {
	known := &m.known[0]
	if write {
		known = &m.known[1]
	}
	p := &known[number%uint64(len(known))]
	if p.number != number+1 {
		return m.learn(p, number, write)
	}
	return p.bytes
}

func (m *memory) learn(p *page, number uint64, write bool) []byte {
	if m.pages == nil {
		return nil
	}
	b, err := m.pages.Bytes(number*pageSize, pageSize, write)
	if err != nil {
		return nil
	}
	*p = page{number + 1, b}
	return b
}
