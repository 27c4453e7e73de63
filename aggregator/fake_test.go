package aggregator

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	face "github.com/umbra-gpu/umbra/aggregator/face/gf100"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCard is the card of most tests.
type (
	fakeCard = fakecard.Card
	regWrite = fakecard.Write
)

var invalidates, preempts = fakecard.Invalidates, fakecard.Preempts

var (
	regInvalidate = fakecard.Reg("NV_PFB_PRI_MMU_INVALIDATE")
)

// recorder records the events of a guest.
type recorder struct {
	mu       sync.Mutex
	faults   map[uint8]gf100.MMUFault
	pbdma    []gf100.PBDMAError
	lists    int
	unbound  int                           // channels that could not be bound
	unlisted int                           // runlists that could not be read
	slow     atomic.Pointer[chan struct{}] // if not nil, each event waits for it
	busy     atomic.Bool                   // one has waited
}

func newRecorder() *recorder { return &recorder{faults: map[uint8]gf100.MMUFault{}} }

func (t *recorder) note(f func()) {
	if c := t.slow.Load(); c != nil {
		t.busy.Store(true)
		<-*c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

func (t *recorder) EngineEvent(uint32)                  {}
func (t *recorder) MMUFault(id uint8, f gf100.MMUFault) { t.note(func() { t.faults[id] = f }) }
func (t *recorder) PBDMAError(e gf100.PBDMAError)       { t.note(func() { t.pbdma = append(t.pbdma, e) }) }
func (t *recorder) GraphTrap(uint8, gf100.GraphTrap)    {}
func (t *recorder) CopyTrap(uint8, gf100.CopyTrap)      {}
func (t *recorder) BindError()                          { t.note(func() { t.unbound++ }) }
func (t *recorder) RunlistError()                       { t.note(func() { t.unlisted++ }) }
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
	patience = time.Minute // for what comes at all
	tick     = time.Millisecond
)

// tester is a test or a case of a property test.
type tester interface {
	require.TestingT
	Helper()
	Cleanup(func())
}

// newAgg makes an aggregator on a card that has all the time that it wants.
func newAgg(t tester, o Options) (*Aggregator, *fakeCard) {
	t.Helper()
	f := fakecard.New(fakeVRAM)
	return newAggOn(t, f, patience, o), f
}

// newAggOn is newAgg on a card of the test's own.
func newAggOn(t tester, c card.Registers, timeout time.Duration, o Options) *Aggregator {
	t.Helper()
	a, err := newAggWith(t, c, timeout, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.(interface{ HoldAll(bool) }).HoldAll(false)
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	return a
}

// newAggWith is newAggOn with limits that may be refused. The caller closes it.
func newAggWith(t tester, c card.Registers, timeout time.Duration, o Options) (*Aggregator, error) {
	t.Helper()
	gpu, err := driver.New(c, driver.Options{Timeout: timeout})
	require.NoError(t, err)
	a, err := New(gpu, o)
	if err != nil {
		gpu.Close()
	}
	return a, err
}

func addGuest(t tester, a *Aggregator, name string) (*Guest, *recorder) {
	t.Helper()
	return addGuestIn(t, a, GuestConfig{Name: name, VRAM: 4 << 20, Tables: 1 << 20})
}

// addGuestWith is addGuest for a guest with a configuration of its own.
func addGuestWith(t tester, a *Aggregator, cfg GuestConfig) *Guest {
	t.Helper()
	cfg.Name, cfg.VRAM, cfg.Tables = "a", 4<<20, 2<<20
	g, _ := addGuestIn(t, a, cfg)
	return g
}

func addGuestIn(t tester, a *Aggregator, cfg GuestConfig) (*Guest, *recorder) {
	t.Helper()
	ev := newRecorder()
	g, err := addFace(a, cfg, ev)
	require.NoError(t, err)
	return g, ev
}

// addFace adds a guest that sees a GF100.
func addFace(a *Aggregator, cfg GuestConfig, ev face.Receiver) (*Guest, error) {
	f := face.New(ev)
	g, err := a.AddGuest(cfg, f)
	if err == nil {
		f.Connect(g)
	}
	return g, err
}

// gpu is the card behind the guest's virtual GPU.
func gpu(g *Guest) *face.Face {
	return g.face.(*face.Face)
}

// listed has a channel on the runlist.
func listed(t tester, g *Guest, id uint8) {
	t.Helper()
	s := gpu(g).State()
	s.Listed.Add(uint32(id))
	require.NoError(t, gpu(g).SetState(s))
}

// Where a test guest has its structures.
const (
	instAt, userdAt, dirAt, listAt = 0x10000, 0x80000, 0x100000, 0x200000
)

// writeInstance makes instance block n as a driver does, for a ring at GPU address ring.
func writeInstance(t tester, g *Guest, n, dir, ring uint64) (inst uint64) {
	t.Helper()
	block := make([]byte, gf100.InstanceSize)
	gf100.InstUSERDLo.Put(block, uint32(userdAt>>12+n))
	gf100.InstPDBLo.Put(block, uint32(dir>>12))
	gf100.InstLimitHi.Put(block, 0xff)
	gf100.InstLimitLo.Put(block, 0xfffff)
	gf100.InstGPLimit2.Put(block, 10)
	gf100.InstGPBaseLo.Put(block, uint32(ring>>3))
	inst = instAt + n*gf100.InstanceSize
	require.True(t, g.mem.Write(shadowpt.VRAM, inst, block))
	return inst
}

// bindChannel makes an instance block, binds the channel, enables it and has it on the runlist.
func bindChannel(t tester, g *Guest, id uint8) {
	t.Helper()
	bindChannelAt(t, g, id, dirAt)
}

// bindChannelAt is bindChannel with the directory at dir.
func bindChannelAt(t tester, g *Guest, id uint8, dir uint64) {
	t.Helper()
	inst := writeInstance(t, g, uint64(id), dir, 0)
	listed(t, g, id)
	bindAt(g, id, inst)
	gpu(g).Channel(id, devgf100.Enable, 1)
	settle(g)
}

// bindAt has a channel bound to an instance block, without waiting.
func bindAt(g *Guest, id uint8, inst uint64) {
	gpu(g).Channel(id, devgf100.Bind, gf100.InstanceBound|uint32(inst>>12))
}

func settle(g *Guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Pending.Invalidate.Merge(shadow.Only(shadow.Key{Dir: 1}))
	g.await()
}

// rounds is how many rounds the guest's worker has begun.
func (g *Guest) rounds() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.work.begun
}

// settleRound waits until nothing is under way.
func settleRound(g *Guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.idle() {
		g.wake.Wait()
	}
}

// eventually waits until what holds with the guest's lock held.
func eventually(t tester, g *Guest, what func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return what()
	}, patience, tick/10)
}

// list has a runlist committed and waits for it.
func list(t tester, g *Guest, ids ...uint32) {
	t.Helper()
	commit(t, g, ids...)
	settle(g)
}

// commit has a runlist committed, without waiting.
func commit(t tester, g *Guest, ids ...uint32) {
	t.Helper()
	var raw []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(raw, id), 4)
	}
	require.True(t, g.mem.Write(shadowpt.VRAM, listAt, raw))
	gpu(g).Runlist(listAt>>12, 0x01f00000|uint32(len(ids)))
}

// writeEntry writes a directory or table entry of the guest.
func writeEntry(t tester, g *Guest, addr, entry uint64) {
	t.Helper()
	require.True(t, g.mem.Write(shadowpt.VRAM, addr, binary.LittleEndian.AppendUint64(nil, entry)))
}

// mapPage writes entries that map a page of the space at dirAt.
func mapPage(t tester, g *Guest) {
	t.Helper()
	const table = 0x300000
	writeEntry(t, g, table, shadowpt.PTE{Valid: true}.Encode())
	writeEntry(t, g, dirAt, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}.Encode())
}

// invalidate invalidates the space at dirAt.
func invalidate(g *Guest) { gpu(g).Invalidate(dirAt>>12<<4, 1<<31|1) }

func (g *Guest) cardChannel(id uint8) *channels.Channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.channels.Channel(uint32(id))
}

// number is the card's number of a channel.
func number(g *Guest, id uint8) uint32 { return g.cardChannel(id).Card().ID() }

// directory is where the card has the directory of a channel's address space.
func directory(t tester, f *fakeCard, g *Guest, id uint8) uint64 {
	t.Helper()
	block := make([]byte, gf100.InstanceSize)
	require.True(t, f.ReadVRAM(instance(t, f, g, id), block))
	return structs.ReadSpace(block).Dir
}

// instance is where the card has a channel's instance block.
func instance(t tester, f *fakeCard, g *Guest, id uint8) uint64 {
	t.Helper()
	inst, ok := f.Instance(number(g, id))
	require.True(t, ok)
	return inst
}

// saveRef makes the card save a reference counter of a channel, and savedRef is what its guest finds.
func saveRef(t tester, f *fakeCard, g *Guest, id uint8, v uint32) {
	t.Helper()
	f.WriteVRAM(instance(t, f, g, id)+uint64(gf100.InstRef.Offset), binary.LittleEndian.AppendUint32(nil, v))
}

func savedRef(t tester, g *Guest, id uint8) uint32 {
	t.Helper()
	b := make([]byte, gf100.InstanceSize)
	require.True(t, g.mem.Read(shadowpt.VRAM, instAt+uint64(id)*gf100.InstanceSize, b))
	return gf100.InstRef.Get(b)
}

// mapRAM gives a guest so many bytes of system memory at bus address 0.
func mapRAM(t require.TestingT, g *Guest, n int) {
	require.NoError(t, g.MapDMA(0, card.Mapping{Mem: make([]byte, n), Write: true}))
}

// reach returns what the card finds at a guest's bus address.
func reach(f *fakeCard, g *Guest, addr uint64, write bool) *card.Mapping {
	m, _ := f.Mappings.At(g.BusAddress(addr), write)
	return m
}
