package shadowpt_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// twin is a guest and a card, as plain as can be. The guest has VRAM in pieces on
// the card and RAM with holes; everything else on the card is not its own.
type twin struct {
	vram   []byte // the guest's, by its own addresses
	pieces []int  // page i of the guest's VRAM lies in page pieces[i] of the card
	ram    []byte
	hole   [2]uint64 // of RAM: not mapped
	ro     [2]uint64 // of RAM: not to be written

	card   []byte
	tables map[uint64]uint64 // allocated, by address
	next   uint64
	room   uint64
	last   uint64 // table that was written

	// mutate is called before each read of a table.
	mutate func()
	t      require.TestingT
}

const (
	twinVRAM  = 2 << 20
	twinRAM   = 1 << 20
	ramWindow = 5 << 35 // where the card sees the guest's RAM
	cardPages = 4 << 20 / shadowpt.SmallPage
	tableBase = 4 << 20 // tables lie after all guest memory
)

func newTwin(t require.TestingT, room uint64) *twin {
	w := &twin{
		vram: make([]byte, twinVRAM), ram: make([]byte, twinRAM), t: t, room: room,
		hole: [2]uint64{0x30000, 0x50000}, ro: [2]uint64{0x80000, 0xa0000},
		tables: map[uint64]uint64{}, next: tableBase, card: make([]byte, tableBase+room), mutate: func() {},
	}
	// The first MiB lies together, the second in pieces of two pages, backwards.
	for i := range twinVRAM / shadowpt.SmallPage {
		at := 64 + i
		if i >= 256 {
			at = cardPages - 2 - (i-256)/2*3 + i%2
		}
		w.pieces = append(w.pieces, at)
	}
	return w
}

func (w *twin) memory(t shadowpt.Target) []byte {
	switch t {
	case shadowpt.VRAM:
		return w.vram
	case shadowpt.SystemCoherent, shadowpt.SystemNonCoherent:
		return w.ram
	}
	return nil
}

func (w *twin) mapped(addr, n uint64, write bool) bool {
	overlaps := func(r [2]uint64) bool { return addr < r[1] && addr+n > r[0] }
	return addr < twinRAM && n <= twinRAM-addr && !overlaps(w.hole) && !(write && overlaps(w.ro))
}

func (w *twin) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool {
	w.mutate()
	m := w.memory(t)
	if addr > uint64(len(m)) || uint64(len(p)) > uint64(len(m))-addr || t.System() && !w.mapped(addr, uint64(len(p)), false) {
		copy(p, m[min(addr, uint64(len(m))):]) // p is undefined, as Guest says
		return false
	}
	copy(p, m[addr:])
	return true
}

// SameTable sees the memory as it is before ReadTable changes it once more.
func (w *twin) SameTable(t shadowpt.Target, addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return w.ReadTable(t, addr, now) && bytes.Equal(now, p)
}

func (w *twin) Translate(t shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	if t.System() {
		return ramWindow + addr, w.mapped(addr, n, write)
	}
	if t != shadowpt.VRAM || addr >= twinVRAM || n > twinVRAM-addr {
		return 0, false
	}
	first := w.pieces[addr>>12]
	for i := range n >> 12 {
		if w.pieces[addr>>12+i] != first+int(i) {
			return 0, false
		}
	}
	return uint64(first)<<12 | addr&0xfff, true
}

func (w *twin) AllocTable(n uint64) (uint64, bool) {
	for at, size := range w.tables { // reuse what was freed, as it is
		if size == 0 && w.next-at >= n && w.reusable(at, n) {
			w.tables[at] = n
			return at, true
		}
	}
	if n > w.room {
		return 0, false
	}
	w.room -= n
	at := w.next
	w.next += n
	w.tables[at] = n
	return at, true
}

func (w *twin) reusable(at, n uint64) bool {
	for a := range w.tables {
		if a > at && a < at+n {
			return false
		}
	}
	return at+n <= w.next
}

func (w *twin) FreeTable(addr, n uint64) {
	require.Equal(w.t, n, w.tables[addr], "freed twice, or never allocated")
	require.True(w.t, bytes.Equal(w.card[addr:addr+n], noTable[:n]), "the table at %#x is not given back empty", addr)
	w.tables[addr] = 0
}

func (w *twin) WriteTable(addr uint64, p []byte) {
	inside := func(at uint64) bool { return addr >= at && addr+uint64(len(p)) <= at+w.tables[at] }
	if !inside(w.last) {
		for at := range w.tables {
			if inside(at) {
				w.last = at
			}
		}
		require.True(w.t, inside(w.last), "written outside a table: %#x", addr)
	}
	copy(w.card[addr:], p)
}

// Read64 is the card's walker: it finds tables in VRAM only.
func (w *twin) Read64(t shadowpt.Target, addr uint64) (uint64, bool) {
	require.Equal(w.t, shadowpt.VRAM, t)
	return binary.LittleEndian.Uint64(w.card[addr:]), true
}

// where is the oracle: the guest's tables, byte by byte, as the hardware's
// documents say, with no code of the package's. It returns the card address of
// va, or false.
func (w *twin) where(dir uint64, target shadowpt.Target, va uint64) (at uint64, kind byte, ro, ok bool) {
	word := func(t int, addr uint64) (lo, hi uint32, ok bool) {
		m := w.memory(shadowpt.Target(t))
		if addr+8 > uint64(len(m)) || t >= 2 && !w.mapped(addr, 8, false) {
			return 0, 0, false
		}
		return binary.LittleEndian.Uint32(m[addr:]), binary.LittleEndian.Uint32(m[addr+4:]), true
	}
	pdeLo, pdeHi, found := word(int(target), dir+va>>27*8)
	if !found || va&(1<<27-1)>>(27-pdeLo>>2&3) != 0 {
		return 0, 0, false, false
	}
	size := pdeLo >> 2 & 3
	for _, big := range []bool{true, false} {
		half, shift, entries := pdeHi, 12, uint64(1<<15)
		if big {
			half, shift, entries = pdeLo, 17, 1<<10
		}
		t := int(half & 3)
		if t == 0 {
			continue
		}
		if t == 1 {
			t = 0
		}
		base := uint64(half>>4) << 12
		// A table counts whole or not at all: what it covers must be the guest's.
		if n := entries >> size * 8; !w.readable(t, base, n) {
			continue
		}
		lo, hi, found := word(t, base+va&(1<<27-1)>>shift*8)
		if !found || lo&1 == 0 {
			continue
		}
		page := uint64(lo>>4)<<12 + va&(1<<shift-1)&^0xfff
		pageTarget, readOnly := shadowpt.Target(hi>>1&3), lo&4 != 0
		card, fine := w.Translate(pageTarget, page, 4096, !readOnly)
		return card | va&0xfff, byte(hi >> 4), readOnly, fine
	}
	return 0, 0, false, false
}

func (w *twin) readable(t int, addr, n uint64) bool {
	m := uint64(len(w.memory(shadowpt.Target(t))))
	return addr <= m && n <= m-addr && (t < 2 || w.mapped(addr, n, false))
}

// inside wants an address that the card got to be the guest's.
func (w *twin) inside(p shadowpt.Page) {
	for off := uint64(0); off < p.Size; off += shadowpt.SmallPage {
		at := p.Addr + off
		if p.Target.System() {
			require.Equal(w.t, uint64(5), at>>35)
			require.True(w.t, w.mapped(at&(1<<35-1), shadowpt.SmallPage, !p.ReadOnly), "%#x", at)
			continue
		}
		require.Equal(w.t, shadowpt.VRAM, p.Target)
		require.Contains(w.t, w.pieces, int(at>>12), "%#x", at)
	}
}

// scatter fills guest memory with tables of n entries, all within a few addresses, and
// returns the VAs to test.
func scatter(t *rapid.T, w *twin, dir uint64, target shadowpt.Target, n int) (vas []uint64) {
	seed := rapid.Uint64().Draw(t, "seed")
	next := func() uint64 {
		seed ^= seed<<13 | 1
		seed ^= seed >> 7
		seed ^= seed << 17
		return seed * 0x2545f4914f6cdd1d
	}
	addrs := []uint64{0x100000, 0x140000, 0x60000, 0x60000, 0x1a0000, 0x1e0000, 0x1ff000, 0x40000, twinVRAM}
	for range 4 {
		pde := uint64(0)
		for _, shift := range []uint{0, 32} {
			r := next()
			addr := addrs[r%uint64(len(addrs))]
			pde |= (addr>>12<<4 | []uint64{0, 1, 1, 1, 2, 3, 2}[r>>16%7]) << shift
		}
		if next()%4 == 0 {
			pde |= next() & 3 << 2
		}
		slot := next() % 4
		if m := w.memory(target); dir+slot*8+8 <= uint64(len(m)) {
			binary.LittleEndian.PutUint64(m[dir+slot*8:], pde)
		}
		vas = append(vas, slot<<27)
	}
	for range n {
		r := next()
		m := w.vram
		if r&1 != 0 {
			m = w.ram
		}
		at := addrs[r>>8%uint64(len(addrs))]
		index := r >> 24 % 64
		if at+index*8+8 > uint64(len(m)) {
			continue
		}
		pte := shadowpt.PTE{
			Valid: next()%8 != 0, ReadOnly: next()%4 == 0, Supervisor: next()%16 == 0, Volatile: next()%2 == 0,
			Target: shadowpt.Target([]int{0, 0, 2, 3, 1}[next()%5]), Addr: next() % (3 << 20) &^ 0xfff,
			Kind: byte(next()), CompTag: uint32(next() % (1 << 17)), Encrypted: next()%4 == 0,
		}
		if next()%3 == 0 {
			pte.Addr &^= shadowpt.BigPage - 1
		}
		if next()%32 == 0 {
			pte.Addr = next() & (1<<40 - 1) &^ 0xfff
		}
		binary.LittleEndian.PutUint64(m[at+index*8:], pte.Encode())
		vas = append(vas, next()%4<<27|index<<12|next()%4096, next()%4<<27|index<<17|next()%(128<<10))
	}
	return vas
}

// What was tried, over all runs: random entries, and addresses that the card found.
var entriesTried, found int

func sameAsOracle(t *rapid.T) {
	w := newTwin(t, 8<<20)
	target := rapid.SampledFrom([]shadowpt.Target{shadowpt.VRAM, shadowpt.SystemCoherent}).Draw(t, "directory in")
	dir := rapid.SampledFrom([]uint64{0, 0x10000, 0x20000, twinVRAM - shadowpt.DirSize}).Draw(t, "directory at")
	if target.System() && dir > twinRAM {
		dir = 0
	}
	s, ok := shadowpt.NewShadow(w, w, shadowpt.NewWork(1<<40), shadowpt.Space{Dir: dir, Target: target, Limit: shadowpt.VASize - 1})
	require.True(t, ok)
	for range rapid.IntRange(1, 3).Draw(t, "rounds") {
		n := rapid.IntRange(1, 400).Draw(t, "entries")
		entriesTried += n
		vas := scatter(t, w, dir, target, n)
		s.Rebuild()
		compare(t, w, s, vas)
		s.Release()
	}
	s.Free()
	for at, n := range w.tables {
		require.Zero(t, n, "table at %#x is not given back", at)
	}
}

func compare(t *rapid.T, w *twin, s *shadowpt.Shadow, vas []uint64) {
	readable := w.readable(int(s.Space().Target), s.Space().Dir, shadowpt.DirSize)
	for _, va := range vas {
		at, kind, ro, want := w.where(s.Space().Dir, s.Space().Target, va)
		want = want && readable
		p, _, got := shadowpt.Walk(w, shadowpt.Space{Dir: s.Dir(), Limit: shadowpt.VASize - 1}, va)
		require.Equal(t, want, got, "VA %#x", va)
		if !got {
			continue
		}
		found++
		w.inside(p)
		require.Equal(t, at, p.Addr+va-p.VA, "VA %#x", va)
		require.Equal(t, kind, p.Kind)
		require.Equal(t, ro, p.ReadOnly)
		require.Zero(t, p.CompTag)
		require.False(t, p.Encrypted)
	}
}

// The shadow, walked by the card, is the guest's tables composed with where the
// guest's memory lies.
func TestShadowEqualsOracle(t *testing.T) {
	rapid.Check(t, sameAsOracle)
	t.Logf("%d random entries, %d addresses found", entriesTried, found)
}

func FuzzShadowEqualsOracle(f *testing.F) { f.Fuzz(rapid.MakeFuzz(sameAsOracle)) }

// A rebuild makes the same tables, and counts the same, whether entries are taken apart
// or not: also where there is no room for all.
func TestRebuildEqualsDecoded(t *testing.T) {
	valid := uint64(0)
	var refused, split, foreign uint64
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]uint64{shadowpt.DirSize + shadowpt.SmallTableSize, 1 << 20, 8 << 20}).Draw(t, "room")
		fast := newTwin(t, room)
		slow := *fast // the same guest
		slow.card, slow.tables = make([]byte, len(fast.card)), map[uint64]uint64{}
		build := func(w *twin) *shadowpt.Shadow {
			s, ok := shadowpt.NewShadow(w, w, shadowpt.NewWork(1<<40), shadowpt.Space{Limit: shadowpt.VASize - 1})
			require.True(t, ok)
			return s
		}
		a, b := build(fast), build(&slow)
		for range rapid.IntRange(1, 3).Draw(t, "rounds") { // nothing is released, so tables come in one order
			scatter(t, fast, 0, shadowpt.VRAM, rapid.IntRange(1, 400).Draw(t, "entries"))
			a.Rebuild()
			b.RebuildDecoded()
			require.Equal(t, b.Counts, a.Counts)
			require.True(t, bytes.Equal(slow.card, fast.card), "the card's tables differ")
		}
		for at := tableBase + shadowpt.DirSize; at < len(fast.card); at += 8 {
			if fast.card[at]&1 != 0 {
				valid++
			}
		}
		refused, split, foreign = refused+a.Counts.NoRoom, split+a.Counts.Split, foreign+a.Counts.Foreign
	})
	t.Logf("%d entries, %d tables without room, %d pages split, %d entries refused", valid, refused, split, foreign)
	require.NotZero(t, valid)
	require.NotZero(t, refused)
	require.NotZero(t, split)
	require.NotZero(t, foreign)
}

// For any concurrent writes of a guest to its tables, the card's stay inside: each entry is
// checked in the one copy that was made.
func TestTablesThatChangeWhileRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t, 8<<20)
		s, ok := shadowpt.NewShadow(w, w, shadowpt.NewWork(1<<40), shadowpt.Space{Limit: shadowpt.VASize - 1})
		require.True(t, ok)
		seed := rapid.Uint64().Draw(t, "bytes")
		w.mutate = func() {
			for i := range 512 {
				seed = seed*6364136223846793005 + 1442695040888963407
				w.vram[0x100000+i*2048+int(seed>>60)] ^= byte(seed >> 33)
				w.vram[seed>>40%64] = byte(seed >> 20)
			}
		}
		vas := scatter(t, w, 0, shadowpt.VRAM, 200)
		s.Rebuild()
		s.Rebuild()
		for _, va := range vas {
			if p, _, ok := shadowpt.Walk(w, shadowpt.Space{Dir: s.Dir(), Limit: shadowpt.VASize - 1}, va); ok {
				w.inside(p)
			}
		}
	})
}

func put(m []byte, addr, q uint64) { binary.LittleEndian.PutUint64(m[addr:], q) }

func small(addr uint64) shadowpt.Table { return shadowpt.Table{Present: true, Addr: addr} }

func newShadow(t *testing.T, w *twin, work *shadowpt.Work) *shadowpt.Shadow {
	s, ok := shadowpt.NewShadow(w, w, work, shadowpt.Space{Limit: shadowpt.VASize - 1})
	require.True(t, ok)
	return s
}

// A big page whose memory is not contiguous is entered as small ones.
func TestBigPageIsSplit(t *testing.T) {
	w := newTwin(t, 4<<20)
	s := newShadow(t, w, shadowpt.NewWork(1<<40))
	put(w.vram, 0, shadowpt.PDE{Big: small(0x20000)}.Encode())
	put(w.vram, 0x20000, shadowpt.PTE{Valid: true, Addr: 0x180000}.Encode())
	put(w.vram, 0x20008, shadowpt.PTE{Valid: true, Addr: 0x40000}.Encode())
	s.Rebuild()
	require.Equal(t, uint64(1), s.Counts.Split)
	for off := uint64(0); off < shadowpt.BigPage; off += shadowpt.SmallPage {
		p, _, ok := shadowpt.Walk(w, shadowpt.Space{Dir: s.Dir(), Limit: shadowpt.VASize - 1}, off)
		require.True(t, ok)
		require.Equal(t, uint64(shadowpt.SmallPage), p.Size)
		require.Equal(t, uint64(w.pieces[0x180+off>>12])<<12, p.Addr)
	}
	p, _, ok := shadowpt.Walk(w, shadowpt.Space{Dir: s.Dir(), Limit: shadowpt.VASize - 1}, shadowpt.BigPage)
	require.True(t, ok)
	require.Equal(t, uint64(shadowpt.BigPage), p.Size, "memory that lies together stays a big page")
}

// Directory entries that name the same tables share their shadow.
func TestTablesAreShared(t *testing.T) {
	w := newTwin(t, 8<<20)
	s := newShadow(t, w, shadowpt.NewWork(1<<40))
	put(w.vram, 0x100000, shadowpt.PTE{Valid: true, Addr: 0x3000}.Encode())
	for d := range uint64(shadowpt.DirEntries) {
		put(w.vram, d*8, shadowpt.PDE{Small: small(0x100000)}.Encode())
	}
	s.Rebuild()
	require.Equal(t, uint64(2), s.Counts.Tables, "the directory and one table")
	require.Len(t, w.tables, 2)
}

// A guest that names ever more tables costs no more memory and no more reading
// than it has a share of.
func TestWorkAndMemoryAreBounded(t *testing.T) {
	w := newTwin(t, shadowpt.DirSize+2*shadowpt.SmallTableSize)
	for i := uint64(0x10000); i < twinVRAM; i += 8 {
		put(w.vram, i, shadowpt.PTE{Valid: true, Addr: i &^ 0xfff % 0x100000}.Encode())
	}
	for d := range uint64(shadowpt.DirEntries) {
		put(w.vram, d*8, shadowpt.PDE{Small: small(0x10000 + d%256*shadowpt.SmallPage)}.Encode())
	}
	work := shadowpt.NewWork(shadowpt.DirSize + 5*shadowpt.SmallTableSize + 100)
	s := newShadow(t, w, work)
	s.Rebuild()
	require.LessOrEqual(t, s.Counts.Examined, uint64(shadowpt.DirEntries+5*shadowpt.SmallEntries))
	require.Equal(t, uint64(3), s.Counts.NoRoom, "five were read, two fitted")
	require.Equal(t, uint64(251), s.Counts.Cut)
	require.Zero(t, work.Left)
	for d := range uint64(256) {
		p, _, ok := shadowpt.Walk(w, shadowpt.Space{Dir: s.Dir(), Limit: shadowpt.VASize - 1}, d<<27)
		require.Equal(t, d < 2, ok, "%d", d)
		if ok {
			w.inside(p)
		}
	}
}

// TestTablesFreedAfterInvalidate: an unused table is freed when the card has finished an
// invalidate, not before.
func TestTablesFreedAfterInvalidate(t *testing.T) {
	w := newTwin(t, 8<<20)
	s := newShadow(t, w, shadowpt.NewWork(1<<40))
	put(w.vram, 0x100000, shadowpt.PTE{Valid: true, Addr: 0x3000}.Encode())
	put(w.vram, 0, shadowpt.PDE{Small: small(0x100000)}.Encode())
	s.Rebuild()
	require.Len(t, w.tables, 2)
	put(w.vram, 0, 0)
	s.Rebuild()
	inUse := func() (n int) {
		for _, size := range w.tables {
			if size != 0 {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, inUse())
	s.Release()
	require.Equal(t, 1, inUse())
	s.Free()
	require.Zero(t, inUse())
}

func BenchmarkRebuild(b *testing.B) {
	w := newTwin(b, 8<<20)
	for i := uint64(0x100000); i < 0x100000+shadowpt.SmallTableSize; i += 8 {
		put(w.vram, i, shadowpt.PTE{Valid: true, Addr: i &^ 0xfff % 0x100000}.Encode())
	}
	put(w.vram, 0, shadowpt.PDE{Small: small(0x100000)}.Encode())
	s, _ := shadowpt.NewShadow(w, w, shadowpt.NewWork(1<<62), shadowpt.Space{Limit: shadowpt.VASize - 1})
	b.SetBytes(shadowpt.SmallTableSize)
	for b.Loop() {
		s.Rebuild()
	}
}
