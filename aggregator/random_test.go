package aggregator

import (
	"bytes"
	"encoding/binary"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// randomGuest changes its tables, channels and memory at random, under a policy that changes
// while it runs. Whenever work reaches the card, the shadow must
// equal the guest's tables as of its last invalidate or later, and every entry must name
// memory of the guest.
type randomGuest struct {
	t    *rapid.T
	g    *Guest
	f    *fakeCard
	ram  []byte
	dirs []uint64 // by channel
	// clean says that nothing was written since the space was invalidated.
	clean []bool
	bound []bool

	doorbells, compared int
}

// Directories and tables in VRAM. Two channels share a directory, and tables overlap.
var (
	randomDirs   = []uint64{0x100000, 0x110000, 0x100000, 0x120000}
	randomTables = []uint64{0x200000, 0x240000, 0x201000, 0x280000}
)

func newRandomGuest(t *rapid.T, p shadowpt.Policy) *randomGuest {
	f := fakecard.New(32 << 20)
	a, err := newAggWith(t, f, patience, Options{})
	require.NoError(t, err)
	fragment(t, a, 16<<20+128<<10, 2<<20, 1<<20, 512<<10, 384<<10, 256<<10, 128<<10)
	g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 4 << 20, Tables: 16 << 20, Shadow: p})
	d := &randomGuest{t: t, g: g, f: f, ram: make([]byte, 1<<20), dirs: randomDirs, clean: make([]bool, len(randomDirs)), bound: make([]bool, len(randomDirs))}
	require.NoError(t, g.MapDMA(0, card.Mapping{Mem: d.ram, Write: true}))
	for id := range d.dirs {
		bindChannelAt(t, g, uint8(id), d.dirs[id])
		d.bound[id] = true
	}
	return d
}

// end removes the guest. Memory that the aggregator kept for it must be zero again: the
// next table or instance block is not cleared.
func (d *randomGuest) end() {
	require.NoError(d.t, d.g.Remove())
	for _, r := range d.g.share.Memory() {
		require.True(d.t, bytes.Equal(d.f.Bytes[r.Addr:r.Addr+r.Size], make([]byte, r.Size)), "%#x+%#x was not cleared", r.Addr, r.Size)
	}
	require.NoError(d.t, d.g.agg.Close())
}

func (d *randomGuest) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

func (d *randomGuest) write(addr, q uint64) {
	clear(d.clean)
	b := binary.LittleEndian.AppendUint64(nil, q)
	if d.pick("by bytes", 2) == 0 {
		require.True(d.t, d.g.mem.Write(shadowpt.VRAM, addr, b))
		return
	}
	for i := range b {
		gpu(d.g).Set(devgf100.PRAMINBase, uint32(addr>>16))
		gpu(d.g).Write(devgf100.PRAMIN, addr&0xffff+uint64(i), b[i:i+1])
	}
}

func (d *randomGuest) step() {
	id := d.pick("channel", len(d.dirs))
	switch d.pick("step", 15) {
	case 0, 1:
		pde := shadowpt.PDE{Size: uint8(d.pick("size", 4))}
		if d.pick("small", 4) > 0 {
			pde.Small = shadowpt.Table{Present: true, Addr: randomTables[d.pick("table", len(randomTables))]}
		}
		if d.pick("big", 3) == 0 {
			pde.Big = shadowpt.Table{Present: true, Addr: randomTables[d.pick("table", len(randomTables))]}
		}
		d.write(d.dirs[id]+uint64(d.pick("slot", 3))*8, pde.Encode())
	case 2, 3, 4:
		pte := shadowpt.PTE{
			Valid: d.pick("valid", 5) > 0, ReadOnly: d.pick("read-only", 2) == 0, Target: []shadowpt.Target{shadowpt.VRAM, shadowpt.SystemCoherent, shadowpt.VRAM, shadowpt.SystemNonCoherent, shadowpt.Peer}[d.pick("target", 5)],
			Addr: uint64(d.pick("page", 1100)) << 12,
		}
		d.write(randomTables[d.pick("table", len(randomTables))]+uint64(d.pick("entry", 600))*8, pte.Encode())
	case 5, 6:
		d.invalidate(id)
	case 7, 8:
		if d.pick("after an invalidate", 2) == 0 {
			d.invalidate(id)
		}
		d.submit(id)
	case 9: // the client maps more, or less
		from, to := uint64(d.pick("from", 128))<<12, uint64(128+d.pick("to", 128))<<12
		d.g.UnmapDMA(0, 1<<20)
		require.NoError(d.t, d.g.MapDMA(from, card.Mapping{Mem: d.ram[from:to], Write: true}))
		clear(d.clean) // until the next invalidate
		d.bounded(from, to)
	case 10:
		policies := shadowpt.Policies()
		p := policies[d.pick("policy", len(policies))]
		d.g.SetShadow(p)
		require.Equal(d.t, p, d.g.Shadow())
	case 11: // the channel becomes busy or idle
		if ch := d.g.cardChannel(uint8(id)); ch != nil {
			d.f.SetChannel(ch.Card().ID(), uint32(d.pick("busy", 2))*gf100.ChannelPending|1)
		}
	case 12, 13: // unbind; the next request may arrive meanwhile
		if d.pick("preempted", 3) > 0 {
			gpu(d.g).Channel(uint8(id), devgf100.Preempt, 0)
		}
		if d.pick("slowly", 2) == 0 {
			d.f.Hold(preempts, true)
			time.AfterFunc(time.Duration(d.pick("for", 300))*time.Microsecond, func() { d.f.Hold(preempts, false) })
		}
		gpu(d.g).Channel(uint8(id), devgf100.Bind, 0)
		d.bound[id] = false
	case 14:
		d.bind(id)
	}
}

// bind binds a channel, again if it is bound: its work sees what was written before.
func (d *randomGuest) bind(id int) {
	bindAt(d.g, uint8(id), instAt+uint64(id)*gf100.InstanceSize)
	for i := range d.clean {
		d.clean[i] = d.clean[i] || i == id
	}
	d.bound[id] = true
	if d.pick("wait", 2) == 0 {
		settleRound(d.g)
	}
}

func (d *randomGuest) invalidate(id int) {
	if d.pick("all", 4) == 0 {
		gpu(d.g).Invalidate(0, 1<<31|gf100.InvalidateAllDirs)
		for i := range d.clean {
			d.clean[i] = true
		}
	} else {
		gpu(d.g).Invalidate(uint32(d.dirs[id]>>12<<4), 1<<31)
		for i := range d.clean {
			d.clean[i] = d.clean[i] || d.dirs[i] == d.dirs[id]
		}
	}
	if d.pick("wait", 2) == 0 {
		require.Eventually(d.t, func() bool { return !gpu(d.g).Pending().Invalidate }, patience, tick/10)
	}
}

// submit submits, and compares the shadow when the doorbell has reached the card.
func (d *randomGuest) submit(id int) {
	if !d.bound[id] {
		d.bind(id)
	}
	d.doorbells++
	n := len(d.f.Doorbells())
	gpu(d.g).Channel(uint8(id), devgf100.Doorbell, 0)
	require.Eventually(d.t, func() bool { return len(d.f.Doorbells()) > n }, patience, tick/10)
	if d.clean[id] {
		d.compared++
		d.compare(uint8(id))
	}
}

// bounded checks that the card reaches the guest's memory from from to to, and none besides.
func (d *randomGuest) bounded(from, to uint64) {
	for addr := uint64(0); addr < 2<<20; addr += 4096 {
		got := reach(d.f, d.g, addr, false) != nil
		require.Equal(d.t, addr >= from && addr < to, got, "%#x", addr)
	}
}

// compare compares a space's shadow with a full rebuild, and checks who owns what it names.
func (d *randomGuest) compare(id uint8) {
	o := &oracle{Memory: d.g.mem, pages: make(map[uint64]shadowpt.Page)}
	block := make([]byte, gf100.InstanceSize)
	require.True(d.t, d.g.mem.Read(shadowpt.VRAM, d.g.cardChannel(id).Place, block))
	shadowpt.NewShadow(o, o, shadowpt.NewWork(shadowpt.Fermi, 1<<40, 1<<40), structs.ReadSpace(block)).Rebuild()
	dir := directory(d.t, d.f, d.g, id)
	d.f.Mu.Lock()
	defer d.f.Mu.Unlock()
	checkShadow(d.t, d.g, d.f.Bytes, dir)
	found := 0
	eachEntry(d.f.Bytes, dir, func(e entry) {
		if e.bits == 0 {
			return
		}
		found++
		p := shadowpt.Page{Size: shadowpt.SmallPage, PTE: shadowpt.DecodePTE(e.bits)}
		if e.big {
			p.Size = shadowpt.BigPage
		}
		p.VA = e.slot*shadowpt.DirSpan + e.index*p.Size
		require.Equal(d.t, o.pages[p.VA], p)
	})
	require.Len(d.t, o.pages, found)
}

// oracle has a space of its own for the same guest.
type oracle struct {
	*memory.Memory
	pages map[uint64]shadowpt.Page
}

func (o *oracle) Apply(list []shadowpt.Change) (int, error) {
	for _, c := range list {
		for i := range c.Pages() {
			va := c.VA + i*c.Page
			o.pages[va] = shadowpt.Page{VA: va, Size: c.Page, PTE: c.PTE(i)}
		}
	}
	return len(list), nil
}
