package gh100_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	driver "github.com/umbra-gpu/umbra/devmodel/guest/gh100"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/shadowpt"
)

const (
	testVRAM = 4<<30 + gsp.Reserved
	ramBase  = 0x4000_0000
)

var le = binary.LittleEndian

// fakeCard holds the virtual GPU to the contract. It has the memories, and notes what it is asked.
type fakeCard struct {
	t        require.TestingT
	ram      []byte
	vram     map[uint64]*[4096]byte
	spaces   map[uint64]bool
	channels map[uint32]uint64 // with their spaces
	notes    []string
	room     int  // for channels
	slow     bool // what it is asked takes until busy is cleared
	busy     bool
	stale    bool // an invalidate is not complete
	fresh    bool // since MemoryBarrier
	broken   [gh100.Rules]int
}

func (c *fakeCard) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
	c.busy = c.slow
}

// took returns the notes since the last call.
func (c *fakeCard) took() string {
	s := strings.Join(c.notes, "; ")
	c.notes = nil
	return s
}

func (c *fakeCard) Time() uint64           { return 5<<32 | 7 }
func (c *fakeCard) BrokeRule(r gh100.Rule) { c.broken[r]++ }
func (c *fakeCard) Reset(keep bool) error {
	clear(c.spaces)
	clear(c.channels)
	if !keep {
		clear(c.vram)
	}
	c.note("reset %t", keep)
	c.busy = false
	return nil
}

// at returns the memory at a bus address.
func (c *fakeCard) at(addr, n uint64) []byte {
	if addr < ramBase || addr-ramBase > uint64(len(c.ram)) || n > uint64(len(c.ram))-(addr-ramBase) {
		return nil
	}
	return c.ram[addr-ramBase:][:n]
}

func (c *fakeCard) Read(addr uint64, p []byte) bool {
	m := c.at(addr, uint64(len(p)))
	copy(p, m)
	return m != nil
}

func (c *fakeCard) Write(addr uint64, p []byte) bool {
	m := c.at(addr, uint64(len(p)))
	copy(m, p)
	return m != nil
}

// move moves p from or to VRAM.
func (c *fakeCard) move(addr uint64, p []byte, move func(m, p []byte) int) {
	for len(p) > 0 && addr < testVRAM {
		if c.vram[addr/4096] == nil {
			c.vram[addr/4096] = new([4096]byte)
		}
		n := move(c.vram[addr/4096][addr%4096:], p)
		addr, p = addr+uint64(n), p[n:]
	}
}

func get(m, p []byte) int { return copy(p, m) }
func put(m, p []byte) int { return copy(m, p) }

func (c *fakeCard) ReadVRAM(addr uint64, p []byte)  { c.move(addr, p, get) }
func (c *fakeCard) WriteVRAM(addr uint64, p []byte) { c.move(addr, p, put) }
func (c *fakeCard) PointPRAMIN(addr uint64)         { require.Zero(c.t, addr%(1<<16)) }

func (c *fakeCard) Read64(_ shadowpt.Target, addr uint64) (uint64, bool) {
	var p [8]byte
	c.ReadVRAM(addr, p[:])
	return le.Uint64(p[:]), true
}

// bar moves p through the tables of BAR1.
func (c *fakeCard) bar(bar int, off uint64, p []byte, move func(m, p []byte) int) {
	in := shadowpt.Space{Dir: gsp.BAR1Root(testVRAM), Limit: 1<<57 - 1}
	if page, _, ok := shadowpt.Hopper.Walk(c, in, off); ok && bar == devmodel.BAR1 {
		c.move(page.Addr+off-page.VA, p, move)
	}
}

func (c *fakeCard) ReadBAR(bar int, off uint64, p []byte)  { c.bar(bar, off, p, get) }
func (c *fakeCard) WriteBAR(bar int, off uint64, p []byte) { c.bar(bar, off, p, put) }
func (c *fakeCard) SetBAR2(entry uint64)                   { c.note("bar2 %#x", entry) }
func (c *fakeCard) MemoryBarrier()                         { c.fresh = true }
func (c *fakeCard) Access()                                {}
func (c *fakeCard) Invalidated() bool                      { return !c.stale }

// barrier is called in what needs to find all that was written without a trap.
func (c *fakeCard) barrier() {
	require.True(c.t, c.fresh, "what was written without a trap comes first")
	c.fresh = false
}

func (c *fakeCard) Invalidate(root uint64, in gsp.Target, all bool) {
	c.barrier()
	c.note("invalidate %#x %d %t", root, in, all)
}

func (c *fakeCard) NewSpace(id uint64) { c.spaces[id] = true; c.note("space") }
func (c *fakeCard) DropSpace(id uint64) {
	require.Contains(c.t, c.spaces, id)
	delete(c.spaces, id)
	c.note("drop")
}

func (c *fakeCard) SetDirectory(id, root uint64, in gsp.Target) {
	require.Contains(c.t, c.spaces, id)
	c.note("directory %#x", root)
}

func (c *fakeCard) OpenChannel(ch gsp.Channel) error {
	require.NotContains(c.t, c.channels, ch.ID)
	require.Contains(c.t, c.spaces, ch.Space)
	if len(c.channels) == c.room {
		return errors.New("no channel is left")
	}
	c.channels[ch.ID] = ch.Space
	c.note("open %d", ch.ID)
	return nil
}

func (c *fakeCard) CloseChannel(id uint32) {
	require.Contains(c.t, c.channels, id)
	delete(c.channels, id)
	c.note("close %d", id)
}

func (c *fakeCard) Schedule(id uint32, on bool) {
	require.Contains(c.t, c.channels, id)
	c.note("schedule %d %t", id, on)
}

func (c *fakeCard) Settled() bool { return !c.busy }
func (c *fakeCard) Doorbell(id uint32) {
	c.barrier()
	require.Contains(c.t, c.channels, id)
	c.note("doorbell %d", id)
}

// machine is a machine with a virtual GPU and a driver, and the host that it is on.
type machine struct {
	*gh100.VGPU
	*driver.Driver
	card  *fakeCard
	log   []string
	line  mmio.Line
	edges int
}

// Interrupt implements devmodel.Host.
func (m *machine) Interrupt(l mmio.Line) {
	if m.line = l; l.Edge {
		m.edges++
		m.card.barrier()
	}
}

// failure is what a driver panics with when it gives up.
type failure string

func newMachine(t require.TestingT) *machine {
	m := &machine{card: &fakeCard{
		t: t, ram: make([]byte, 4<<20), vram: map[uint64]*[4096]byte{}, spaces: map[uint64]bool{}, channels: map[uint32]uint64{}, room: 8,
	}}
	var err error
	m.VGPU, err = gh100.New(gh100.Config{Objects: 100, Log: func(format string, args ...any) {
		m.log = append(m.log, fmt.Sprintf(format, args...))
	}}, testVRAM)
	require.NoError(t, err)
	m.Connect(m.card)
	m.AttachHost(m)
	m.drive()
	return m
}

// bootAt is where the driver has the arguments of a boot in RAM: after the queues.
const bootAt = 0x81000

// drive begins with a new driver.
func (m *machine) drive() {
	m.Driver = &driver.Driver{Bus: m.VGPU, RAM: m.card.ram, Base: ramBase, Timeout: 20 * time.Millisecond,
		Fail: func(why ...any) { panic(failure(fmt.Sprint(why...))) }}
}
