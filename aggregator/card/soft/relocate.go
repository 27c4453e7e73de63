package soft

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// backing is where the bytes of a page are.
type backing struct {
	file *os.File
	off  uint64
}

// piece is memory that lies together in one file, from addr to the next piece.
type piece struct {
	addr uint64
	backing
}

// after returns the place of the byte at addr + n.
func (p piece) after(n uint64) backing { return backing{p.file, p.off + n} }

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
			to = backing{v.file, addr}
		}
		if err = v.move(addr, n, from, to, r.NoCopy); err == nil {
			done += n
		}
		return err == nil
	})
	return done, err
}

// runs calls f for each piece of VRAM that lies together now, until it returns false. f may change where the piece is.
func (v *vram) runs(addr, size uint64, f func(addr, n uint64, at backing) bool) {
	for end := addr + size; addr < end; {
		i := v.pieceAt(addr)
		n := min(v.pieceEnd(i), end) - addr
		if !f(addr, n, v.pieces[i].after(addr-v.pieces[i].addr)) {
			return
		}
		addr += n
	}
}

// pieceAt returns the index of the piece that has the byte at addr.
func (v *vram) pieceAt(addr uint64) int {
	i, found := slices.BinarySearchFunc(v.pieces, addr, func(p piece, addr uint64) int { return cmp.Compare(p.addr, addr) })
	if !found {
		i--
	}
	return i
}

// pieceEnd returns the address after the last byte of a piece.
func (v *vram) pieceEnd(i int) uint64 {
	if i+1 < len(v.pieces) {
		return v.pieces[i+1].addr
	}
	return uint64(len(v.mem))
}

// move moves adjacent pages. It clears the destination before the copy, which skips zeros: a
// guest that has it mapped may have written there.
func (v *vram) move(addr, n uint64, from, to backing, noCopy bool) error {
	if from == to {
		return nil
	}
	if to.file != v.file && len(v.pieces)+2 > v.limit {
		return errMappings
	}
	if noCopy {
		if err := v.remap(addr, n, to.file, to.off); err != nil {
			return err
		}
		v.note(addr, n, to)
		return nil
	}
	if err := punch(to.file, to.off, n); err != nil {
		return err
	}
	if err := v.copy(to.file, to.off, from, n); err != nil {
		return err
	}
	if err := v.remap(addr, n, to.file, to.off); err != nil {
		return errors.Join(err, punch(to.file, to.off, n))
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

// note records where pages are now. Pieces that follow each other become one.
func (v *vram) note(addr, n uint64, at backing) {
	v.renew(addr, n)
	end := addr + n
	first, last := v.pieceAt(addr), v.pieceAt(end-1)
	now := []piece{{addr, at}}
	if p := v.pieces[first]; p.addr < addr {
		now = []piece{p, {addr, at}}
	}
	if v.pieceEnd(last) > end {
		p := v.pieces[last]
		now = append(now, piece{end, p.after(end - p.addr)})
	}
	// The neighbours are looked at, too: what was changed may follow on from them.
	if first > 0 {
		first--
		now = slices.Insert(now, 0, v.pieces[first])
	}
	if last+1 < len(v.pieces) {
		last++
		now = append(now, v.pieces[last])
	}
	merged := now[:1]
	for _, p := range now[1:] {
		if before := merged[len(merged)-1]; before.after(p.addr-before.addr) != p.backing {
			merged = append(merged, p)
		}
	}
	v.pieces = slices.Replace(v.pieces, first, last+1, merged...)
}
