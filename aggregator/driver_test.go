package aggregator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// driver is a guest that changes its tables, channels and memory at random, under a
// policy that changes while it runs. Whenever work reaches the card, the shadow must
// equal the guest's tables as of its last invalidate or later, and every entry must name
// memory of the guest.
type driver struct {
	t    *rapid.T
	g    *Guest
	f    *fakeCard
	bus  *rangeBus
	dirs []uint64 // by channel
	// clean says that nothing was written since the space was invalidated.
	clean []bool
	bound []bool

	doorbells, compared int
}

// rangeBus is guest memory of which a range is mapped.
type rangeBus struct {
	cutFile
	from, to uint64
}

func (b *rangeBus) Slice(addr uint64, n int, write bool) []byte {
	if addr < b.from || addr+uint64(n) > b.to {
		return nil
	}
	return b.cutFile.Slice(addr, n, write)
}

// Directories and tables in VRAM. Two channels share a directory, and tables overlap.
var (
	driverDirs   = []uint64{0x100000, 0x110000, 0x100000, 0x120000}
	driverTables = []uint64{0x200000, 0x240000, 0x201000, 0x280000}
)

// driverVRAM and oracleVRAM are reused: a property test makes hundreds of drivers.
var driverVRAM, oracleVRAM = make([]byte, 32<<20), make([]byte, 4<<20)

func newDriver(t *rapid.T, p shadowpt.Policy) *driver {
	clear(driverVRAM)
	f := newFake(0)
	f.vram = driverVRAM
	a, err := NewWith(f, Options{CardTimeout: patience})
	require.NoError(t, err)
	fragment(a, 16<<20+128<<10, 2<<20, 1<<20, 512<<10, 384<<10, 256<<10, 128<<10)
	g, err := a.AddGuest(GuestConfig{Name: "a", VRAM: 4 << 20, Tables: 16 << 20, Shadow: p}, &recorder{})
	require.NoError(t, err)
	d := &driver{t: t, g: g, f: f, bus: &rangeBus{cutFile{make([]byte, 1<<20)}, 0, 1 << 20}, dirs: driverDirs, clean: make([]bool, len(driverDirs)), bound: make([]bool, len(driverDirs))}
	g.AttachMemory(d.bus)
	for id := range d.dirs {
		bindChannelAt(t, g, uint8(id), d.dirs[id])
		d.bound[id] = true
	}
	return d
}

// end removes the guest. The aggregator's memory for it must be zero again: the next table
// or instance block is not cleared.
func (d *driver) end() {
	require.NoError(d.t, d.g.Remove())
	for _, r := range d.g.privateRuns {
		require.True(d.t, bytes.Equal(d.f.vram[r.Addr:r.Addr+r.Size], make([]byte, r.Size)), "%#x+%#x was not cleared", r.Addr, r.Size)
	}
	require.NoError(d.t, d.g.agg.Close())
}

func (d *driver) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

func (d *driver) write(addr, q uint64) {
	for i := range d.clean {
		d.clean[i] = false
	}
	b := binary.LittleEndian.AppendUint64(nil, q)
	if d.pick("by bytes", 2) == 0 {
		require.True(d.t, d.g.eachRun(addr, b, true))
		return
	}
	for i := range b {
		d.g.WritePRAMIN(uint32(addr>>16), uint32(addr&0xffff)+uint32(i), b[i:i+1])
	}
}

func (d *driver) step() {
	id := d.pick("channel", len(d.dirs))
	switch d.pick("step", 15) {
	case 0, 1:
		pde := shadowpt.PDE{Size: uint8(d.pick("size", 4))}
		if d.pick("small", 4) > 0 {
			pde.Small = shadowpt.Table{Present: true, Addr: driverTables[d.pick("table", len(driverTables))]}
		}
		if d.pick("big", 3) == 0 {
			pde.Big = shadowpt.Table{Present: true, Addr: driverTables[d.pick("table", len(driverTables))]}
		}
		d.write(d.dirs[id]+uint64(d.pick("slot", 3))*8, pde.Encode())
	case 2, 3, 4:
		pte := shadowpt.PTE{
			Valid: d.pick("valid", 5) > 0, ReadOnly: d.pick("read-only", 2) == 0, Target: []shadowpt.Target{shadowpt.VRAM, shadowpt.SystemCoherent, shadowpt.VRAM, shadowpt.SystemNonCoherent, shadowpt.Peer}[d.pick("target", 5)],
			Addr: uint64(d.pick("page", 1100)) << 12,
		}
		d.write(driverTables[d.pick("table", len(driverTables))]+uint64(d.pick("entry", 600))*8, pte.Encode())
	case 5, 6:
		d.invalidate(id)
	case 7, 8:
		if d.pick("after an invalidate", 2) == 0 {
			d.invalidate(id)
		}
		d.submit(id)
	case 9: // the client maps more, or less
		from, to := uint64(d.pick("from", 128))<<12, uint64(128+d.pick("to", 128))<<12
		old := *d.bus
		d.g.agg.bus.attach(d.g.index, &rangeBus{d.bus.cutFile, from, to})
		d.bus = &rangeBus{d.bus.cutFile, from, to}
		d.g.Mapped(min(from, old.from), max(to, old.to))
		d.g.Unmapped(0, 1<<20)
		d.same()
	case 10:
		policies := shadowpt.Policies()
		p := policies[d.pick("policy", len(policies))]
		require.NoError(d.t, d.g.SetShadow(p))
		require.Equal(d.t, p, d.g.Shadow())
	case 11: // the channel becomes busy or idle
		if ch := d.g.cardChannel(uint8(id)); ch != nil {
			d.f.set(regChannel+uint32(ch.id)*8, uint32(d.pick("busy", 2))*gf100.ChannelPending|1)
		}
	case 12, 13: // unbind; the next request may arrive meanwhile
		if d.pick("preempted", 3) > 0 {
			d.g.Preempt(uint8(id))
		}
		if d.pick("slowly", 2) == 0 {
			d.f.hold(regPreempt, true)
			time.AfterFunc(time.Duration(d.pick("for", 300))*time.Microsecond, func() { d.f.hold(regPreempt, false) })
		}
		d.g.Bind(uint8(id), 0)
		d.bound[id] = false
	case 14:
		d.bind(id)
	}
}

// bind binds a channel, again if it is bound: its work sees what was written before.
func (d *driver) bind(id int) {
	d.g.Bind(uint8(id), 0xc0000000|uint32((instAt+uint64(id)*gf100.InstanceSize)>>12))
	for i := range d.clean {
		d.clean[i] = d.clean[i] || i == id
	}
	d.bound[id] = true
	if d.pick("wait", 2) == 0 {
		settleRound(d.g)
	}
}

func (d *driver) invalidate(id int) {
	if d.pick("all", 4) == 0 {
		d.g.Invalidate(0, 1<<31|gf100.InvalidateAllDirs)
		for i := range d.clean {
			d.clean[i] = true
		}
	} else {
		d.g.Invalidate(uint32(d.dirs[id]>>12<<4), 1<<31)
		for i := range d.clean {
			d.clean[i] = d.clean[i] || d.dirs[i] == d.dirs[id]
		}
	}
	if d.pick("wait", 2) == 0 {
		require.Eventually(d.t, d.g.Invalidated, patience, tick/10)
	}
}

// submit submits, and compares the shadow when the doorbell has reached the card.
func (d *driver) submit(id int) {
	if !d.bound[id] {
		d.bind(id)
	}
	d.doorbells++
	n := len(d.f.rings())
	d.g.Doorbell(uint8(id))
	require.Eventually(d.t, func() bool { return len(d.f.rings()) > n }, patience, tick/10)
	if d.clean[id] {
		d.compared++
		d.compare(d.g.cardChannel(uint8(id)).space)
	}
}

// same compares all shadows: unmapped memory updates them all.
func (d *driver) same() {
	d.g.mu.Lock()
	var list []*space
	for i := range d.g.channels {
		if ch := d.g.channels[i].ch; ch != nil && !slices.Contains(list, ch.space) {
			list = append(list, ch.space)
		}
	}
	d.g.mu.Unlock()
	for _, sp := range list {
		d.compare(sp)
	}
}

// compare compares a space's shadow with a full rebuild, and checks the owners of its
// pages.
func (d *driver) compare(sp *space) {
	clear(oracleVRAM)
	o := &oracle{Guest: d.g, mem: oracleVRAM}
	s, ok := shadowpt.NewShadow(o, o, shadowpt.NewWork(1<<40), sp.shadow.Space())
	require.True(d.t, ok)
	s.Rebuild()
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	require.Equal(d.t, flatten(o.mem, s.Dir()), flatten(d.f.vram, sp.shadow.Dir()))
	checkShadow(d.t, d.g, d.f.vram, sp.shadow.Dir())
}

// oracle builds tables of its own for the same guest.
type oracle struct {
	*Guest
	mem  []byte
	next uint64
}

func (o *oracle) AllocTable(n uint64) (uint64, bool) {
	o.next += n
	return o.next - n, true
}
func (o *oracle) FreeTable(uint64, uint64)         {}
func (o *oracle) WriteTable(addr uint64, p []byte) { copy(o.mem[addr:], p) }

// flatten lists the entries of a shadow that are not zero.
func flatten(mem []byte, dir uint64) (list []string) {
	for i := range uint64(shadowpt.DirEntries) {
		q := binary.LittleEndian.Uint64(mem[dir+i*8:])
		if q == 0 {
			continue
		}
		pde := shadowpt.DecodePDE(q)
		for _, t := range []struct {
			name string
			shadowpt.Table
			n uint64
		}{{"big", pde.Big, shadowpt.BigEntries}, {"small", pde.Small, shadowpt.SmallEntries}} {
			if !t.Present || bytes.Equal(mem[t.Addr:t.Addr+t.n*8], make([]byte, t.n*8)) {
				continue
			}
			for k := range t.n {
				if e := binary.LittleEndian.Uint64(mem[t.Addr+k*8:]); e != 0 {
					list = append(list, fmt.Sprintf("%d size %d %s %d: %x", i, pde.Size, t.name, k, e))
				}
			}
		}
	}
	return list
}
