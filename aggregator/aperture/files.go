package aperture

import (
	"errors"
	"os"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// Where the windows lie in BAR0, and how large the one on VRAM is.
const (
	romBase    = 0x300000
	praminBase = 0x700000
	praminSize = 0x100000
)

// Region is a part of a BAR that a machine may map.
type Region struct {
	BAR   int
	File  *os.File // as long as the BAR; the Mapper's own
	Areas []Area
}

// Area is a piece of a region, in bytes.
type Area struct{ Offset, Size uint64 }

func (s *Mapper) makeFiles() (err error) {
	for bar, f := range [4]struct {
		name string
		size uint64
		used Map
	}{
		0: {"bar0", s.cfg.BAR0, MapPRAMIN | MapROM},
		1: {"bar1", s.cfg.BAR1, MapBAR1},
		3: {"bar3", s.cfg.BAR3, MapBAR3},
	} {
		if s.cfg.Map&f.used == 0 {
			continue
		}
		if s.files[bar], err = newMemory(f.name, f.size); err != nil {
			return err
		}
	}
	s.putROM()
	return nil
}

func (s *Mapper) putROM() {
	if s.cfg.Map&MapROM == 0 {
		return
	}
	mem := s.files[card.BAR0].mem[romBase:][:s.romSize()]
	for i := copy(mem, s.cfg.ROM); i < len(mem); i++ {
		mem[i] = 0xff // no device answers
	}
}

func (s *Mapper) romSize() uint64 { return (uint64(len(s.cfg.ROM)) + pageSize - 1) &^ (pageSize - 1) }

func (s *Mapper) closeFiles() error {
	var errs []error
	for i, m := range s.files {
		if m != nil {
			errs = append(errs, m.close())
			s.files[i] = nil
		}
	}
	return errors.Join(errs...)
}

// Regions lists what the client may map.
func (s *Mapper) Regions() (list []Region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	may := s.Map()
	add := func(bar int, areas ...Area) {
		list = append(list, Region{BAR: bar, File: s.files[bar].file, Areas: areas})
	}
	var zero []Area
	if may&MapROM != 0 && s.romSize() > 0 {
		zero = append(zero, Area{romBase, s.romSize()})
	}
	if may&MapPRAMIN != 0 {
		zero = append(zero, Area{praminBase, praminSize})
	}
	if len(zero) > 0 {
		add(card.BAR0, zero...)
	}
	if may&MapBAR1 != 0 && s.cfg.Poll < s.cfg.BAR1 {
		add(card.BAR1, Area{s.cfg.Poll, s.cfg.BAR1 - s.cfg.Poll})
	}
	if may&MapBAR3 != 0 {
		add(card.BAR3, Area{0, s.cfg.BAR3})
	}
	return list
}

// clear zeroes slots that lost their page, unless another page is there by now.
func (s *Mapper) clear() {
	list := s.vacated
	s.vacated = s.vacated[:0]
	slices.Sort(list)
	list = slices.DeleteFunc(slices.Compact(list), func(at slot) bool {
		return s.Slots[at].Resident != nothing || s.Slots[at].MergeBase != nil
	})
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0]+slot(n) && s.sameWindow(list[0], list[n]) {
			n++
		}
		m, off := s.at(list[0])
		m.punch(off, uint64(n)<<pageShift)
		list = list[n:]
	}
}

// at returns the file of a slot, and the slot's offset in it.
func (s *Mapper) at(at slot) (*memory, uint64) {
	k, n := s.kind(at)
	off := uint64(n) << pageShift
	switch k {
	case BAR3:
		return s.files[card.BAR3], off
	case BAR1:
		return s.files[card.BAR1], off
	}
	return s.files[card.BAR0], praminBase + off
}

// bytes is a slot's page as the guest sees it.
func (s *Mapper) bytes(at slot) []byte {
	m, off := s.at(at)
	return m.mem[off : off+pageSize]
}
