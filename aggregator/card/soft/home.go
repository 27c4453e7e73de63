package soft

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// place is where a page lives that is not in the card's own memory.
type place struct {
	file *os.File // nil: the card's own
	off  uint64
}

// mappings is how many pieces the card's memory may be mapped in: most of what
// the system lets a process have.
func mappings() int { return MaxMappings() / 4 * 3 }

// MaxMappings is how many mappings the system lets a process have (vm.max_map_count).
func MaxMappings() int {
	const usual = 65530
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	n, perr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || perr != nil {
		n = usual
	}
	return n
}

// Pieces implements card.Pieces.
func (c *Card) Pieces() int { return c.vram.limit - 2 }

var errPieces = errors.New("the system lets a process have no more mappings (vm.max_map_count)")

// Still implements card.Card.
func (c *Card) Still(channels []uint8, do func()) {
	for _, id := range channels {
		c.still[id].Lock()
		defer c.still[id].Unlock()
	}
	do()
}

// Home implements card.Card.
func (c *Card) Home(m card.Move) (uint64, error) {
	if c.vram.slice(m.Addr, int(m.Size)) == nil || (m.Addr|m.Size|m.Off)%pageSize != 0 {
		return 0, fmt.Errorf("move VRAM %#x+%#x: not whole pages of the card's %#x bytes", m.Addr, m.Size, c.cfg.VRAM)
	}
	done, err := c.vram.home(m)
	c.stats.PagesMoved.Add(done / pageSize)
	if err != nil {
		return done, fmt.Errorf("move VRAM %#x+%#x: %w", m.Addr, m.Size, err)
	}
	return done, nil
}

// home moves pages, one piece that lies together after the other.
func (v *vram) home(m card.Move) (done uint64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.runs(m, func(addr, n uint64, from place) bool {
		to := place{m.To, m.Off + done}
		if m.To == nil {
			to.off = addr
		}
		if from.file == nil {
			from = place{v.file, addr}
		}
		kept := m.Kept
		if kept != nil {
			kept = kept[done:][:n]
		}
		if err = v.piece(addr, n, from, to, kept, &m); err == nil {
			done += n
		}
		return err == nil
	})
	return done, err
}

// runs calls f for each piece of m that lies together now, until it returns false.
func (v *vram) runs(m card.Move, f func(addr, n uint64, at place) bool) {
	end := m.Addr + m.Size
	for addr := m.Addr; addr < end; {
		at := v.away[addr/pageSize]
		n := uint64(pageSize)
		for addr+n < end && v.follows(at, n, v.away[(addr+n)/pageSize]) {
			n += pageSize
		}
		if !f(addr, n, at) {
			return
		}
		addr += n
	}
}

// follows reports whether a page at next lies n bytes behind one at first.
func (v *vram) follows(first place, n uint64, next place) bool {
	return first.file == next.file && (first.file == nil || first.off+n == next.off)
}

// piece moves pages that lie together. Where they go to is cleared first: whoever
// has it mapped may have written there.
func (v *vram) piece(addr, n uint64, from, to place, kept []byte, m *card.Move) error {
	dest := to.file
	if dest == nil {
		dest = v.file
	} else if v.pieces+2 > v.limit {
		return errPieces
	}
	if from.file == dest && from.off == to.off {
		return nil
	}
	if !m.Adopt {
		if err := punch(dest, to.off, n); err != nil {
			return err
		}
		if err := v.copy(dest, to.off, from, n, kept); err != nil {
			return err
		}
	}
	if err := v.remap(addr, n, dest, to.off); err != nil {
		if !m.Adopt {
			err = errors.Join(err, punch(dest, to.off, n))
		}
		return err
	}
	v.note(addr, n, to)
	if m.Stay {
		return nil
	}
	return punch(from.file, from.off, n)
}

// copy copies what is not zero.
func (v *vram) copy(dest *os.File, off uint64, from place, n uint64, kept []byte) error {
	if v.buf == nil {
		v.buf = make([]byte, 256<<10)
	}
	for done := uint64(0); done < n; {
		// What was never written is a hole, which must not be filled by looking.
		data, err := unix.Seek(int(from.file.Fd()), int64(from.off+done), unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && uint64(data) >= from.off+n {
			return nil
		}
		if err != nil {
			return err
		}
		done = max(done, uint64(data)-from.off) &^ (pageSize - 1)
		b := v.buf[:min(uint64(len(v.buf)), n-done)]
		if _, err := from.file.ReadAt(b, int64(from.off+done)); err != nil && err != io.EOF {
			return err
		}
		if kept != nil {
			copy(kept[done:], b)
		}
		if _, err := dest.WriteAt(b, int64(off+done)); err != nil {
			return err
		}
		done += uint64(len(b))
	}
	return nil
}

// note writes down where pages live now, and in how many pieces.
func (v *vram) note(addr, n uint64, at place) {
	v.renew(addr, n)
	first, end := addr/pageSize, (addr+n)/pageSize
	for p := first; p <= end; p++ {
		v.pieces -= v.edge(p)
	}
	for p := first; p < end; p++ {
		if at.file == nil {
			delete(v.away, p)
		} else {
			v.away[p] = place{at.file, at.off + (p-first)*pageSize}
		}
	}
	for p := first; p <= end; p++ {
		v.pieces += v.edge(p)
	}
}

// edge is 1 if a mapping begins with page p.
func (v *vram) edge(p uint64) int {
	if p == 0 || p >= uint64(len(v.mem))/pageSize || v.follows(v.away[p-1], pageSize, v.away[p]) {
		return 0
	}
	return 1
}
