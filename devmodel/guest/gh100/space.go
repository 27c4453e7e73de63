package gh100

import "github.com/umbra-gpu/umbra/shadowpt"

// The memories that pages lie in.
const (
	VRAM = shadowpt.VRAM
	RAM  = shadowpt.SystemCoherent
)

// tables are page tables in VRAM, of pages of 4 KiB and of 2 MiB.
type tables struct {
	*Driver
	root uint64
	at   map[[2]uint64]uint64 // tables by level and the address before it
}

func (d *Driver) newTables(root uint64) *tables {
	d.WriteVRAM(root, make([]byte, pageSize))
	return &tables{Driver: d, root: root, at: map[[2]uint64]uint64{}}
}

// set sets the entry of the page at va.
func (t *tables) set(va uint64, pte shadowpt.PTE) {
	f := shadowpt.Hopper
	at := t.table(va, len(f.Dirs))
	t.WriteVRAM(at+f.Pages[1].Index(va)*8, le.AppendUint64(nil, f.EncodePTE(pte)))
}

// setLarge sets the entry of the page of 2 MiB at va. The range has no small pages.
func (t *tables) setLarge(va uint64, pte shadowpt.PTE) {
	f := shadowpt.Hopper
	last := len(f.Dirs) - 1
	at := t.table(va, last)
	t.WriteVRAM(at+f.Dirs[last].Index(va)*16, le.AppendUint64(le.AppendUint64(nil, f.EncodePTE(pte)), 0))
}

// table returns the table for va below n directories. It makes those that are missing.
func (t *tables) table(va uint64, n int) (at uint64) {
	at = t.root
	for i := range n {
		l := &shadowpt.Hopper.Dirs[i]
		below := [2]uint64{uint64(i), va >> l.Shift}
		next, there := t.at[below]
		if !there {
			next = t.AllocVRAM(pageSize)
			t.WriteVRAM(next, make([]byte, pageSize))
			w := l.Encode(shadowpt.PDE{Small: shadowpt.Table{Present: true, Target: VRAM, Addr: next}})
			p := le.AppendUint64(le.AppendUint64(nil, w[0]), w[1])
			t.WriteVRAM(at+l.Index(va)*uint64(l.Words)*8, p[:8*l.Words])
			t.at[below] = next
		}
		at = next
	}
	return at
}

// Entry is where in VRAM the entry for va lies, in a table of a level that Map or MapBAR1 has made: that of
// pages comes after the directories.
func (t *tables) Entry(level int, va uint64) uint64 {
	f, at := shadowpt.Hopper, t.root
	if level > 0 {
		at = t.at[[2]uint64{uint64(level - 1), va >> f.Dirs[level-1].Shift}]
	}
	if level == len(f.Dirs) {
		return at + f.Pages[1].Index(va)*8
	}
	return at + f.Dirs[level].Index(va)*uint64(f.Dirs[level].Words)*8
}

// Flush makes changed entries effective.
func (t *tables) Flush(command uint32) {
	t.Write32(0xb830a0, uint32(t.root>>8))
	t.Write32(0xb830a4, uint32(t.root>>40))
	t.Write32(0xb830b0, 1<<31|command)
	t.Wait("end of a flush", func() bool { return t.Read32(0xb830b0)>>31 == 0 })
}

// Window has the tables of BAR1.
func (d *Driver) Window() interface {
	Entry(level int, va uint64) uint64
} {
	return d.window
}

// MapBAR1 shows a page of VRAM in BAR1, and returns where.
func (d *Driver) MapBAR1(addr uint64) (off uint64) {
	d.windowEnd += pageSize
	d.Show(d.windowEnd-pageSize, addr)
	return d.windowEnd - pageSize
}

// Show shows another page of VRAM at a place that MapBAR1 returned.
func (d *Driver) Show(off, addr uint64) {
	d.window.set(off, shadowpt.PTE{Valid: true, Target: VRAM, Addr: addr})
	d.window.Flush(7)
}

// ShowBAR2 shows n bytes of VRAM at the beginning of BAR2, the function's BAR3, or takes them away.
func (d *Driver) ShowBAR2(addr, n uint64, on bool) {
	first := d.window2 == nil
	if first {
		d.window2 = d.newTables(d.AllocVRAM(pageSize))
	}
	for at := uint64(0); at < n; at += pageSize {
		d.window2.set(at, shadowpt.PTE{Valid: on, Target: VRAM, Addr: addr + at})
	}
	if first {
		below := shadowpt.Table{Present: true, Target: VRAM, Addr: d.window2.at[[2]uint64{}]}
		d.Call(70, Fields{0: 1, 8: shadowpt.Hopper.Dirs[0].Encode(shadowpt.PDE{Small: below})[0], 0x10: 56}.Bytes(0x18))
	}
	d.window2.Flush(7)
}

// Space is an address space, with a client of its own.
type Space struct {
	*tables
	Client uint32
	next   uint64 // the next address that is free
}

// Handles of the objects in each client.
const (
	device    = 0xde1d0000
	subdevice = 0x5d1d0000
	space     = 0x90f10000
	channel   = 0xf1f00000
)

// NewSpace makes a client with an empty address space.
func (d *Driver) NewSpace() *Space {
	s := &Space{Client: 0xc1d00000 + d.clients, tables: d.newTables(d.AllocVRAM(pageSize)), next: 1 << 20}
	d.clients++
	d.must(d.Alloc(s.Client, s.Client, s.Client, 0, make([]byte, 120)))
	d.must(d.Alloc(s.Client, s.Client, device, 0x80, make([]byte, 56)))
	d.must(d.Alloc(s.Client, device, subdevice, 0x2080, make([]byte, 4)))
	d.must(d.Alloc(s.Client, device, space, 0x90f1, Fields{4: 8}.Bytes(0x30)))
	s.Attach()()
	return s
}

// Detach takes the space's tables away, and so its channels off the card.
func (s *Space) Detach() {
	s.must(s.Control(s.Client, device, 0x801814, Fields{0: space}.Bytes(8)))
}

// Attach gives the space its tables. The next call comes after wait.
func (s *Space) Attach() (wait func()) {
	status := s.begin(s.Client, device, 0x801813, Fields{0: s.root, 8: 2, 0x10: space}.Bytes(0x20))
	return func() { s.must(status()) }
}

// Root is the address of the space's directory in VRAM.
func (s *Space) Root() uint64 { return s.root }

// Map maps n bytes of a memory, and returns where. VRAM has pages of 2 MiB where the range allows it, as with
// stock drivers.
func (s *Space) Map(in shadowpt.Target, addr, n uint64) (va uint64) {
	size, set := uint64(pageSize), s.set
	if in == VRAM && (addr|n)%largePage == 0 {
		size, set = largePage, s.setLarge
	}
	s.next = (s.next + size - 1) &^ (size - 1)
	va = s.next
	for ; s.next < va+n; s.next += size {
		set(s.next, shadowpt.PTE{Valid: true, Target: in, Addr: addr + s.next - va})
	}
	s.Flush(1)
	return va
}

// SetPages has pages of VRAM, which need not lie together, be one behind the other after the next Flush, and returns where.
func (s *Space) SetPages(addrs []uint64) (va uint64) {
	va = s.next
	for _, addr := range addrs {
		s.set(s.next, shadowpt.PTE{Valid: true, Target: VRAM, Addr: addr})
		s.next += pageSize
	}
	return va
}

// Unmap takes a page away.
func (s *Space) Unmap(va uint64) {
	s.set(va, shadowpt.PTE{})
	s.Flush(1)
}

// Close frees the space with its channels, as the end of a client does.
func (s *Space) Close() {
	s.Detach()
	s.must(s.Free(s.Client, s.Client))
}
