package process

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/engine"
)

// memory is the address space of the launch. Pages that nobody has reached are asked of the server. It implements
// interp.Memory.
type memory struct {
	pages *engine.Pages
	flat  interp.Memory // what pages has

	mu      sync.Mutex // held for a question, and what is below
	conn    *jit.Conn
	open    bool // the server answers: a step is under way
	files   []*file
	card    *cardMemory
	version uint64 // of what pages has
	steps   []span // that it has for a step alone
}

// span is a range of addresses.
type span struct{ addr, size uint64 }

// file is one of the server's, with what is mapped of it.
type file struct {
	*os.File
	chunks map[uint64][]byte
}

// chunkBytes is the unit in which files are mapped. It takes addresses only.
const chunkBytes = 1 << 30

func newMemory(conn *jit.Conn) (*memory, error) {
	pages, err := engine.NewPages()
	if err != nil {
		return nil, err
	}
	m := &memory{conn: conn, pages: pages, flat: pages.Memory()}
	if m.card, err = openCard(); err != nil {
		return nil, err
	}
	m.files = []*file{nil} // jit.CardFile
	return m, nil
}

// answered says whether the server answers questions.
func (m *memory) answered(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = is
}

// begin readies the memory for a step, in which pages of another version, or of the last step alone, are not true.
func (m *memory) begin(version uint64) {
	for _, s := range m.steps {
		m.pages.Unmap(s.addr, s.size)
	}
	m.steps = m.steps[:0]
	if version != m.version {
		m.pages.Clear()
		m.version = version
	}
}

var errNoPlace = errors.New("memory that only the server reaches")

// ask asks the server for memory around an address.
func (m *memory) ask(addr uint64, write bool) error {
	if addr>>compile.AddressBits != 0 {
		return errNoPlace
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return errNoPlace
	}
	q := jit.Message{Kind: jit.Ask, A: addr}
	if write {
		q.B = 1
	}
	if err := m.conn.Send(&q, nil); err != nil {
		return err
	}
	var a jit.Message
	f, err := m.conn.Receive(&a)
	if err != nil {
		return err
	}
	if a.Kind != jit.Give {
		return fmt.Errorf("the server sent message %d: want %d", a.Kind, jit.Give)
	}
	if f != nil {
		m.files = append(m.files, &file{f, make(map[uint64][]byte)})
	}
	if a.C == 0 {
		return errNoPlace
	}
	return m.show(&a)
}

// show makes memory of a file visible.
func (m *memory) show(a *jit.Message) error {
	if a.B >= uint64(len(m.files)) {
		return fmt.Errorf("the server named file %d of %d", a.B, len(m.files))
	}
	rights := uint64(compile.PageReadable)
	if a.E&jit.GiveWrite != 0 {
		rights |= compile.PageWritable
	}
	if a.E&jit.GiveStep != 0 {
		m.steps = append(m.steps, span{a.A, a.C})
	}
	for done := uint64(0); done < a.C; {
		mem, err := m.piece(a.B, a.D+done, a.C-done)
		if err != nil {
			return err
		}
		if err := m.pages.Map(a.A+done, mem, rights); err != nil {
			return err
		}
		done += uint64(len(mem))
	}
	return nil
}

// piece returns memory of a file: n bytes, or fewer.
func (m *memory) piece(number, off, n uint64) ([]byte, error) {
	if number == jit.CardFile {
		return m.card.piece(off, n)
	}
	at := off % chunkBytes
	mem, err := m.files[number].chunk(off / chunkBytes)
	if err != nil {
		return nil, err
	}
	return mem[at:min(at+n, chunkBytes)], nil
}

func (f *file) chunk(n uint64) ([]byte, error) {
	if mem := f.chunks[n]; mem != nil {
		return mem, nil
	}
	mem, err := unix.Mmap(int(f.Fd()), int64(n*chunkBytes), chunkBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map a piece of the guest's memory: %w", err)
	}
	f.chunks[n] = mem
	return mem, nil
}

// Load implements interp.Memory.
func (m *memory) Load(addr uint64, to []byte) error {
	return m.reach(addr, len(to), false, func() error { return m.flat.Load(addr, to) })
}

// Store implements interp.Memory.
func (m *memory) Store(addr uint64, from []byte) error {
	return m.reach(addr, len(from), true, func() error { return m.flat.Store(addr, from) })
}

// Update implements interp.Memory.
func (m *memory) Update(addr uint64, size int, f func(old uint64) uint64) (old uint64, err error) {
	err = m.reach(addr, size, true, func() (err error) {
		old, err = m.flat.Update(addr, size, f)
		return err
	})
	return old, err
}

// reach accesses memory, and asks for its first page and its last if they are not there.
func (m *memory) reach(addr uint64, n int, write bool, access func() error) error {
	if access() == nil {
		return nil
	}
	if err := m.ask(addr, write); err != nil {
		return err
	}
	if access() == nil {
		return nil
	}
	if err := m.ask(addr+uint64(n)-1, write); err != nil {
		return err
	}
	return access()
}

// reachBanks makes the constants of a launch visible: code looks at them before it starts, and does not start without.
func (m *memory) reachBanks(l *interp.Launch) {
	const pageBytes = 1 << compile.PageBits
	var b [1]byte
	for i := range l.Banks {
		bank := &l.Banks[i]
		for at := uint64(0); bank.Valid && at < uint64(min(bank.Size, maxBank)); at += pageBytes {
			if m.Load(bank.Addr+at, b[:]) != nil {
				break
			}
		}
	}
}

// maxBank is what instructions reach of a bank.
const maxBank = 1 << 16
