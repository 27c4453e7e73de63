package soft

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// backing is where the bytes of a page are that are not in the card's own memory.
type backing struct {
	file *os.File // nil: the card's own
	off  uint64
}

// MaxMappings implements card.Relocator.
func (c *Card) MaxMappings() int { return c.vram.limit - 2 }

var errMappings = errors.New("the system lets a process have no more mappings (vm.max_map_count)")

// QuiesceChannels implements card.Relocator.
func (c *Card) QuiesceChannels(ids []uint32, do func()) {
	for _, id := range ids {
		c.stepping[id].Lock()
		defer c.stepping[id].Unlock()
	}
	do()
}

// Relocate implements card.Relocator.
func (c *Card) Relocate(r card.Relocation) (uint64, error) {
	if c.vram.slice(r.Addr, int(r.Size)) == nil || (r.Addr|r.Size|r.Off)%pageSize != 0 {
		return 0, fmt.Errorf("move VRAM %#x+%#x: not whole pages of the card's %#x bytes", r.Addr, r.Size, c.cfg.VRAM)
	}
	done, err := c.vram.relocate(r)
	c.moved.Add(1)
	c.stats.PagesMoved.Add(done / pageSize)
	if err != nil {
		return done, fmt.Errorf("move VRAM %#x+%#x: %w", r.Addr, r.Size, err)
	}
	return done, nil
}

// relocate moves pages, one piece that lies together after the other.
func (v *vram) relocate(r card.Relocation) (done uint64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.runs(r.Addr, r.Size, func(addr, n uint64, from backing) bool {
		to := backing{r.To, r.Off + done}
		if r.To == nil {
			to.off = addr
		}
		if from.file == nil {
			from = backing{v.file, addr}
		}
		if err = v.piece(addr, n, from, to, r.NoCopy); err == nil {
			done += n
		}
		return err == nil
	})
	return done, err
}

// runs calls f for each piece of VRAM that lies together now, until it returns false.
func (v *vram) runs(addr, size uint64, f func(addr, n uint64, at backing) bool) {
	for end := addr + size; addr < end; {
		at := v.away[addr/pageSize]
		n := uint64(pageSize)
		for addr+n < end {
			if next := addr + n; at.file == nil && next%groupSize == 0 && next+groupSize <= end && v.awayIn[next/groupSize] == 0 {
				n += groupSize
			} else if v.follows(at, n, v.away[next/pageSize]) {
				n += pageSize
			} else {
				break
			}
		}
		if !f(addr, n, at) {
			return
		}
		addr += n
	}
}

// follows reports whether next is the backing n bytes after first.
func (v *vram) follows(first backing, n uint64, next backing) bool {
	return first.file == next.file && (first.file == nil || first.off+n == next.off)
}

// piece moves adjacent pages. It clears the destination before the copy, which skips zeros: a
// guest that has it mapped may have written there.
func (v *vram) piece(addr, n uint64, from, to backing, noCopy bool) error {
	dest := to.file
	if dest == nil {
		dest = v.file
	} else if v.pieces+2 > v.limit {
		return errMappings
	}
	if from.file == dest && from.off == to.off {
		return nil
	}
	if noCopy {
		if err := v.remap(addr, n, dest, to.off); err != nil {
			return err
		}
		v.note(addr, n, to)
		return nil
	}
	if err := punch(dest, to.off, n); err != nil {
		return err
	}
	if err := v.copy(dest, to.off, from, n); err != nil {
		return err
	}
	if err := v.remap(addr, n, dest, to.off); err != nil {
		return errors.Join(err, punch(dest, to.off, n))
	}
	v.note(addr, n, to)
	return punch(from.file, from.off, n)
}

// copy copies what is not zero.
func (v *vram) copy(dest *os.File, off uint64, from backing, n uint64) error {
	if v.buf == nil {
		v.buf = make([]byte, 256<<10)
	}
	for done := uint64(0); done < n; {
		// A read would allocate the pages of a hole.
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
		if _, err := dest.WriteAt(b, int64(off+done)); err != nil {
			return err
		}
		done += uint64(len(b))
	}
	return nil
}

// note records where pages are now, and in how many pieces.
func (v *vram) note(addr, n uint64, at backing) {
	v.renew(addr, n)
	first, end := addr/pageSize, (addr+n)/pageSize
	for p := first; p <= end; p++ {
		v.pieces -= v.edge(p)
	}
	for p := first; p < end; p++ {
		group := &v.awayIn[p*pageSize/groupSize]
		if _, was := v.away[p]; was {
			*group--
		}
		if at.file == nil {
			delete(v.away, p)
		} else {
			*group++
			v.away[p] = backing{at.file, at.off + (p-first)*pageSize}
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
