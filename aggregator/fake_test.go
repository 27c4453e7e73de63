package aggregator

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCard is a card that only records: registers as they were written, VRAM as bytes.
// Waits of a driver end immediately, unless the test holds them.
type fakeCard struct {
	mu        sync.Mutex
	regs      map[uint32]uint32
	writes    []regWrite
	doorbells []regWrite // GP_PUT by channel
	vram      []byte
	looks     int // reads of VRAM
	host      card.Host

	stuck map[uint32]bool // registers whose wait is held
}

type regWrite struct{ reg, v uint32 }

func newFake(size uint64) *fakeCard {
	return &fakeCard{regs: map[uint32]uint32{}, vram: make([]byte, size), stuck: map[uint32]bool{}}
}

// done are the bits that a register reads when nothing is pending, by register.
func (f *fakeCard) read(reg uint32) uint32 {
	v := f.regs[reg]
	switch {
	case reg == regMMUCtrl && !f.stuck[reg]:
		v |= gf100.InvalidateDone
	case reg == regEngRunlist || reg == regPreempt:
		v &^= gf100.RunlistPending
		if f.stuck[reg] {
			v |= gf100.RunlistPending
		}
	}
	return v
}

func (f *fakeCard) ReadBAR(_ int, off uint64, p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	binary.LittleEndian.PutUint32(p, f.read(uint32(off)))
}

// w1c are the registers whose bits are acknowledged by writing them.
var w1c = map[uint32]bool{regFIFOIntr: true, regFaultID: true, regGraphIntr: true, regPBDMAIntr: true, regPBDMAIntr + stridePBDMA: true}

func (f *fakeCard) WriteBAR(bar int, off uint64, p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := binary.LittleEndian.Uint32(p)
	if bar == card.BAR1 {
		f.doorbells = append(f.doorbells, regWrite{uint32(off / gf100.USERDSize), v})
		return
	}
	reg := uint32(off)
	f.writes = append(f.writes, regWrite{reg, v})
	if w1c[reg] {
		v = f.regs[reg] &^ v
	}
	f.regs[reg] = v
	f.recompute()
}

// recompute is the interrupt tree of what the tests raise.
func (f *fakeCard) recompute() {
	fifo := uint32(0)
	if f.regs[regFaultID] != 0 {
		fifo |= gf100.IntrMMUFault
	}
	if f.regs[regPBDMAIntr] != 0 {
		fifo |= gf100.IntrPBDMA
		f.regs[regPBDMAID] = 1
	}
	f.regs[regFIFOIntr] = fifo
	intr := uint32(0)
	if fifo != 0 {
		intr |= intrPFIFO
	}
	if f.regs[regGraphIntr] != 0 {
		intr |= intrPGRAPH
	}
	f.regs[regPMCIntr] = intr
}

// raise sets registers and asks for an interrupt.
func (f *fakeCard) raise(regs map[uint32]uint32) {
	f.mu.Lock()
	maps.Copy(f.regs, regs)
	f.recompute()
	h := f.host
	f.mu.Unlock()
	h.Interrupt(card.Line{Level: true, Edge: true})
}

func (f *fakeCard) Quiesce(_ []uint8, do func())             { do() }
func (f *fakeCard) Relocate(card.Relocation) (uint64, error) { return 0, errors.ErrUnsupported }

func (f *fakeCard) set(reg, v uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.regs[reg] = v
}

func (f *fakeCard) get(reg uint32) uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.regs[reg]
}

func (f *fakeCard) hold(reg uint32, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck[reg] = on
}

func (f *fakeCard) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes, f.doorbells = nil, nil
}

func (f *fakeCard) rings() []regWrite {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]regWrite(nil), f.doorbells...)
}

// writesTo returns the writes to n bytes of registers from base on.
func (f *fakeCard) writesTo(base, n uint32) (list []regWrite) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.writes {
		if w.reg >= base && w.reg-base < n {
			list = append(list, w)
		}
	}
	return list
}

// runlist returns the numbers on the runlist that was written last.
func (f *fakeCard) runlist() (ids []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := uint64(f.regs[regRunlistBase]) << 12
	for i := range uint64(f.regs[regRunlist] & 0xfff) {
		ids = append(ids, binary.LittleEndian.Uint32(f.vram[at+i*8:]))
	}
	return ids
}

func (f *fakeCard) BARSize(int) uint64 { return 1 << 27 }
func (f *fakeCard) VRAMSize() uint64   { return uint64(len(f.vram)) }

func (f *fakeCard) ReadVRAM(addr uint64, p []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if addr+uint64(len(p)) > uint64(len(f.vram)) {
		return false
	}
	copy(p, f.vram[addr:])
	return true
}

// word returns 8 bytes of the card's memory.
func (f *fakeCard) word(addr uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return binary.LittleEndian.Uint64(f.vram[addr:])
}

func (f *fakeCard) SameVRAM(addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return f.ReadVRAM(addr, now) && bytes.Equal(now, p)
}

func (f *fakeCard) WriteVRAM(addr uint64, p []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if addr+uint64(len(p)) > uint64(len(f.vram)) {
		return false
	}
	copy(f.vram[addr:], p)
	return true
}

func (f *fakeCard) ScrubVRAM(addr, n uint64) error {
	if addr%vram.PageSize != 0 || n%vram.PageSize != 0 || addr+n > uint64(len(f.vram)) {
		return fmt.Errorf("scrub %#x+%#x", addr, n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.vram[addr : addr+n])
	return nil
}

// quiet is the card without its memory of what was written.
func (f *fakeCard) quiet() card.Card { return quietCard{f} }

type quietCard struct{ *fakeCard }

func (quietCard) WriteBAR(int, uint64, []byte) {}

func (f *fakeCard) AttachHost(h card.Host) { f.host = h }
func (f *fakeCard) DetachHost()            { f.host = nil }
func (f *fakeCard) Reset() error           { return nil }

// recorder records the events of a guest.
type recorder struct {
	mu       sync.Mutex
	engines  uint32
	faults   map[uint8]gf100.MMUFault
	pbdma    []gf100.PBDMAError
	graph    map[uint8]gf100.GraphTrap
	lists    int
	unbound  int                           // channels that could not be bound
	unlisted int                           // runlists that could not be read
	slow     atomic.Pointer[chan struct{}] // if not nil, each event waits for it
}

func (t *recorder) note(f func()) {
	if c := t.slow.Load(); c != nil {
		<-*c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

func (t *recorder) EngineEvent(e uint32) { t.note(func() { t.engines |= e }) }
func (t *recorder) MMUFault(id uint8, f gf100.MMUFault) {
	t.note(func() {
		if t.faults == nil {
			t.faults = map[uint8]gf100.MMUFault{}
		}
		t.faults[id] = f
	})
}
func (t *recorder) PBDMAError(e gf100.PBDMAError) { t.note(func() { t.pbdma = append(t.pbdma, e) }) }
func (t *recorder) GraphTrap(id uint8, g gf100.GraphTrap) {
	t.note(func() {
		if t.graph == nil {
			t.graph = map[uint8]gf100.GraphTrap{}
		}
		t.graph[id] = g
	})
}
func (t *recorder) CopyTrap(uint8, gf100.CopyTrap) {}
func (t *recorder) BindError()                     { t.note(func() { t.unbound++ }) }
func (t *recorder) RunlistError()                  { t.note(func() { t.unlisted++ }) }
func (t *recorder) Done(runlist bool) {
	t.note(func() {
		if runlist {
			t.lists++
		}
	})
}

func (t *recorder) saw(f func() bool) func() bool {
	return func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return f()
	}
}

const (
	fakeVRAM = 80 << 20
	patience = time.Minute // for events of unknown delay
	tick     = time.Millisecond
)

func newAgg(t *testing.T, o Options) (*Aggregator, *fakeCard) {
	t.Helper()
	f := newFake(fakeVRAM)
	return newAggOn(t, f, o), f
}

// newAggOn is newAgg on a card of the test's own.
func newAggOn(t *testing.T, c card.Card, o Options) *Aggregator {
	t.Helper()
	a, err := NewWith(c, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	return a
}

func addGuest(t *testing.T, a *Aggregator, name string) (*Guest, *recorder) {
	t.Helper()
	ev := &recorder{}
	g, err := a.AddGuest(GuestConfig{Name: name, VRAM: 4 << 20, Tables: 1 << 20}, ev)
	require.NoError(t, err)
	return g, ev
}

// addGuestWith is addGuest for a guest with a configuration of its own.
func addGuestWith(t require.TestingT, a *Aggregator, cfg GuestConfig) *Guest {
	cfg.Name, cfg.VRAM, cfg.Tables = "a", 4<<20, 2<<20
	g, err := a.AddGuest(cfg, &recorder{})
	require.NoError(t, err)
	return g
}

// Where a test guest has its structures.
const (
	instAt, userdAt, dirAt, listAt = 0x10000, 0x80000, 0x100000, 0x200000
)

// bindChannel makes an instance block as a driver does, binds and enables it.
func bindChannel(t *testing.T, g *Guest, id uint8) {
	t.Helper()
	bindChannelAt(t, g, id, dirAt)
}

// bindChannelAt is bindChannel with the directory at dir.
func bindChannelAt(t require.TestingT, g *Guest, id uint8, dir uint64) {
	block := make([]byte, gf100.InstanceSize)
	gf100.InstUSERDLo.Put(block, uint32(userdAt>>12)+uint32(id))
	gf100.InstPDBLo.Put(block, uint32(dir>>12))
	gf100.InstLimitHi.Put(block, 0xff)
	gf100.InstLimitLo.Put(block, 0xfffff)
	gf100.InstGPLimit2.Put(block, 10)
	inst := instAt + uint64(id)*gf100.InstanceSize
	require.True(t, g.eachRun(inst, block, true))
	g.Bind(id, 0xc0000000|uint32(inst>>12))
	g.Enable(id, true)
	settle(g)
}

func settle(g *Guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending.invalidate.add(spaceKey{dir: 1})
	g.await()
}

// list commits a runlist.
func list(t *testing.T, g *Guest, ids ...uint32) {
	t.Helper()
	var raw []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(raw, id), 4)
	}
	require.True(t, g.eachRun(listAt, raw, true))
	g.Runlist(listAt>>12, 0x01f00000|uint32(len(ids)))
	settle(g)
}

func (g *Guest) cardChannel(id uint8) *channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.channels[id].ch
}
