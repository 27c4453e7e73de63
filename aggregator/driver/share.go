package driver

import (
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

var _ [gf100.Owners]struct{} = [card.MaxShares]struct{}{}

// share is one guest's part of the card: its memory, and more of it for its tables and its instance blocks.
type share struct {
	driver *Driver
	cfg    card.ShareConfig
	runs   []card.Run
	vram   []card.Run     // of AllocVRAM; guarded by Driver.table
	free   vram.Allocator // of runs; all zero
	format *shadowpt.Format
}

// channelPage is what each channel takes of its share's memory.
const channelPage = vram.PageSize

// NewShare implements card.GPU; one call at a time. The pages of channels that are not guaranteed take
// memory of the tables.
func (d *Driver) NewShare(c card.ShareConfig) (card.Share, error) {
	describer, format, err := d.describer(c.Class)
	if err != nil {
		return nil, err
	}
	if least := leastTables(format); c.Tables < least {
		return nil, fmt.Errorf("%d KiB for page tables: one address space needs %d KiB", c.Tables>>10, least>>10)
	}
	s := &share{driver: d, cfg: c, format: format}
	d.table.Lock()
	promised := 0
	for _, o := range d.shares {
		promised += o.cfg.Guaranteed
	}
	d.table.Unlock()
	if left := gf100.Channels - promised; c.Guaranteed > left {
		return nil, fmt.Errorf("%d guaranteed channels: only %d of the card's %d are not guaranteed to others; guarantee fewer", c.Guaranteed, left, gf100.Channels)
	}
	if s.runs, err = d.alloc(c.Tables+uint64(c.Guaranteed)*channelPage, vram.PageSize); err != nil {
		return nil, fmt.Errorf("page tables and channels: %w", err)
	}
	s.free.Release(s.runs...)
	d.table.Lock()
	defer d.table.Unlock()
	d.shares = append(d.shares, s)
	if describer != nil {
		return describedShare{s, describer}, nil
	}
	return s, nil
}

// leastTables is what the tables of one page take.
func leastTables(f *shadowpt.Format) uint64 {
	n := vram.WholePages(f.Pages[smallPages].Size())
	for i := range f.Dirs {
		n += vram.WholePages(f.Dirs[i].Size())
	}
	return n
}

// AllocVRAM implements card.Share.
func (s *share) AllocVRAM(size, align uint64) ([]card.Run, error) {
	runs, err := s.driver.alloc(size, align)
	s.driver.table.Lock()
	defer s.driver.table.Unlock()
	s.vram = append(s.vram, runs...)
	return runs, err
}

// Close implements card.Share.
func (s *share) Close(lost bool) {
	s.driver.table.Lock()
	defer s.driver.table.Unlock()
	if !lost {
		s.driver.memory.Release(s.runs...)
		s.driver.memory.Release(s.vram...)
	}
	s.driver.shares = slices.DeleteFunc(s.driver.shares, func(o *share) bool { return o == s })
}

// Memory implements card.Share.
func (s *share) Memory() []card.Run { return s.runs }

// Tables implements card.Share: all but the pages of channels.
func (s *share) Tables() (out []card.Run) {
	var pages []uint64
	for _, ch := range s.driver.members(s) {
		pages = append(pages, ch.common().page)
	}
	slices.Sort(pages)
	for _, r := range s.runs {
		from := r.Addr
		for _, at := range append(pages, r.Addr+r.Size) {
			if at < from || at > r.Addr+r.Size {
				continue
			}
			if at > from {
				out = append(out, card.Run{Addr: from, Size: at - from})
			}
			from = at + channelPage
		}
	}
	return out
}

// take takes memory of the share, all zero, in whole pages.
func (s *share) take(n uint64) (addr uint64, ok bool) {
	r, ok := s.free.Take(vram.WholePages(n), vram.PageSize)
	return r.Addr, ok
}

// giveBack is the reverse of take. The caller has zeroed the memory.
func (s *share) giveBack(addr, n uint64) {
	s.free.Release(card.Run{Addr: addr, Size: vram.WholePages(n)})
}

func (s *share) write(addr uint64, p []byte) { s.driver.WriteVRAM(addr, p) }

// takeNumber gives ch a number of the card, unless all that are free are guaranteed to other
// shares. It takes number prefer if that is free.
func (d *Driver) takeNumber(ch member, prefer uint32) bool {
	mine := ch.common().share
	d.table.Lock()
	defer d.table.Unlock()
	free, reserved, used := 0, 0, make(map[*share]int)
	for _, c := range d.channels {
		if c == nil {
			free++
		} else {
			used[c.common().share]++
		}
	}
	for _, s := range d.shares {
		if s != mine {
			reserved += max(s.cfg.Guaranteed-used[s], 0)
		}
	}
	if free == 0 || free <= reserved && used[mine] >= mine.cfg.Guaranteed {
		return false
	}
	if prefer >= gf100.Channels || d.channels[prefer] != nil {
		prefer = uint32(slices.Index(d.channels[:], nil))
	}
	d.channels[prefer], ch.common().id = ch, prefer
	return true
}
