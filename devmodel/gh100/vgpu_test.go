package gh100_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	driver "github.com/umbra-gpu/umbra/devmodel/guest/gh100"
	"github.com/umbra-gpu/umbra/mmio"
	chip "github.com/umbra-gpu/umbra/mmio/gh100"
)

// channel boots the machine to a channel that runs.
func (m *machine) channel(id uint32, e driver.Engine) *driver.Channel {
	m.Boot()
	return m.NewSpace().NewChannel(id, e)
}

// TestSubmission: a driver comes from its probe to a channel. The card gets what it submits, and the driver
// the interrupt that it is done.
func TestSubmission(t *testing.T) {
	m := newMachine(t)
	c := m.channel(3, driver.Copy1)
	flush := fmt.Sprintf("invalidate %#x 1 false; ", c.Root())
	bar1 := fmt.Sprintf("invalidate %#x 1 true; ", gsp.BAR1Root(testVRAM))
	require.Equal(t, fmt.Sprintf("space; directory %#x; ", c.Root())+bar1+flush+"open 3; schedule 3 true", m.card.took())
	for i := range uint32(3) {
		c.Submit(driver.Copy(0x1000, 0x2000, 64)...)
		require.Equal(t, "doorbell 3", m.card.took())
		var p [4]byte
		m.card.ReadVRAM(c.USERD+0x8c, p[:])
		require.Equal(t, i+1, le.Uint32(p[:]), "GP_PUT")
	}
	for _, token := range []uint32{3, 1<<16 | 2, 1<<16 | 3 | 1<<12, 1<<31 | 1<<16 | 3} {
		m.Write32(0xbb0090, token)
	}
	require.Empty(t, m.card.took())
	require.Equal(t, [gh100.Rules]int{gh100.RuleDoorbell: 4}, m.card.broken)
	require.Len(t, m.log, 1)

	m.WriteConfig(0x68, []byte{5, 0x78, 1, 0})
	m.card.fresh = false
	m.Completed(2)
	require.True(t, m.line.Level && m.line.Edge && m.line.MSI)
	require.Equal(t, 1, m.edges)
	m.Completed(2)
	engines, event := m.Interrupts()
	require.Equal(t, uint32(1)<<2, engines)
	m.card.barrier() // what is acknowledged is visible, of the second one, too
	require.False(t, event || m.line.Level)

	m.card.stale = true
	m.Write32(0xb830b0, 1<<31|1)
	require.NotZero(t, m.Read32(0xb830b0)>>31)
	m.Write32(0xb830a0, 0x1234_5672)
	m.Write32(0xb830b0, 1)
	m.card.took()
	m.Write32(0xb830b0, 1<<31|1)
	require.Equal(t, "invalidate 0x1234567000 2 false", m.card.took())
	m.card.stale = false
	require.Zero(t, m.Read32(0xb830b0)>>31)

	c.Close()
	c.Space.Close()
	m.Unload(false)
	require.Equal(t, "close 3; directory 0x0; drop", m.card.took())
	m.Boot()
	require.Empty(t, m.Unsupported())
	m.Control(0, 0, 1, nil)
	require.Equal(t, []gsp.Unsupported{{Kind: "control", Number: 1, Count: 1}}, m.Unsupported())
	require.Len(t, m.log, 2)
}

// TestLateEvents: events that had to wait for room are announced when the driver has read.
func TestLateEvents(t *testing.T) {
	m := newMachine(t)
	m.channel(1, driver.Graphics)
	const most = 40 // more than half of the queue
	for range most {
		m.Failed(gh100.Failure{Channel: 1, Kind: gsp.ErrorMMU})
	}
	got := 0
	for m.line.Level {
		_, event := m.Interrupts()
		require.True(t, event)
		for _, there := m.Receive(); there; _, there = m.Receive() {
			got++
		}
		m.Read32(0)
	}
	require.Equal(t, most, got)
}

// TestSuspend: a machine that sleeps resets its devices when it wakes up. The memory and the channels are
// there again. After a reset of another kind nothing is.
func TestSuspend(t *testing.T) {
	for _, c := range []struct {
		name             string
		suspended, there bool
		keep             bool
	}{{"sleep", true, true, true}, {"the machine ended", true, false, false}, {"reboot", false, true, false}} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			ch := m.channel(1, driver.Graphics)
			m.WriteVRAM(0x100, []byte{1, 2, 3, 4})
			if c.suspended {
				m.Suspend()
				require.Empty(t, m.card.channels)
				require.Empty(t, m.card.spaces)
			}
			if !c.there {
				m.AttachHost(nil)
			}
			m.card.took()
			require.NoError(t, m.Reset())
			require.Contains(t, m.card.took(), fmt.Sprintf("reset %t", c.keep))
			m.AttachHost(m)
			require.EqualValues(t, chip.Boot0, m.Read32(0))
			require.Zero(t, m.Read32(0xb81608))
			if !c.keep {
				require.Zero(t, m.card.vram[0])
				require.Panics(t, m.Resume)
				require.EqualValues(t, 0x1f, m.Read32(0x110040))
				require.Len(t, m.log, 1)
				require.Equal(t, 1, m.card.broken[gh100.RuleBoot])
				m.channel(1, driver.Graphics)
				return
			}
			m.Resume()
			require.Equal(t, fmt.Sprintf("space; directory %#x; open 1; schedule 1 true", ch.Root()), m.card.took())
			ch.Submit()
			require.Equal(t, "doorbell 1", m.card.took())
			require.Equal(t, []byte{1, 2, 3, 4}, m.card.vram[0][0x100:0x104])
			require.Empty(t, m.log)
		})
	}
}

// TestBrokenQueue: GSP stops for a driver that breaks its queue, and boots again.
func TestBrokenQueue(t *testing.T) {
	m := newMachine(t)
	for i := range 2 {
		m.channel(1, driver.Graphics)
		le.PutUint32(m.card.ram[0x1010:], 99) // the write pointer of the calls
		m.Write32(0x110c00, 0)
		require.Empty(t, m.card.channels)
		require.EqualValues(t, 0x1f, m.Read32(0x110040))
		require.Equal(t, i+1, m.card.broken[gh100.RuleQueues])
		require.Len(t, m.log, 1)
	}
}

// TestOnlyTranslatedRowsReachTheCard reads and writes every dword that has a row, and some that have none.
func TestOnlyTranslatedRowsReachTheCard(t *testing.T) {
	m := newMachine(t)
	m.channel(1, driver.Graphics)
	policy := map[uint64]mmio.Policy{}
	for _, row := range m.Registers().Rows() {
		if row.Aperture == 0 {
			for i := range row.Instances {
				policy[uint64(row.Reg.InstanceOffset(i))] = row.Reg.Policy
			}
		}
	}
	for off := uint64(0x1000); off < chip.SpaceSize; off += 4 * 1021 {
		policy[off] += 0
	}
	for off, p := range policy {
		m.card.took()
		v := m.Read32(off)
		m.Write32(off, 0xffffffff)
		require.True(t, m.card.notes == nil || p == mmio.Translate, "%06x", off)
		if p == mmio.Refuse {
			require.Equal(t, v, m.Read32(off))
		}
	}
}

// FuzzAccesses: whatever a guest accesses and has in its memory, no access panics or waits, the contract
// with the card is kept, and after a reset the next driver finds the GPU in order.
func FuzzAccesses(f *testing.F) {
	m := newMachine(f)
	for seed := range byte(4) {
		data := make([]byte, 1000)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { m.access(t, data) })
}

// TestRandomAccesses is FuzzAccesses, and the state stays small.
func TestRandomAccesses(t *testing.T) {
	m := newMachine(t)
	rapid.Check(t, func(t *rapid.T) {
		data := make([]byte, 4000)
		_, _ = rand.NewChaCha8([32]byte{rapid.Byte().Draw(t, "seed"), rapid.Byte().Draw(t, "more")}).Read(data)
		m.access(t, data)
		st := m.State()
		require.LessOrEqual(t, len(st.GSP.Objects), 103)
		text, err := json.Marshal(st)
		require.NoError(t, err)
		require.Less(t, len(text), 4<<20)
	})
}

// source draws from data.
type source []byte

func (s *source) Uint64() (v uint64) {
	n := min(len(*s), 2)
	for _, b := range (*s)[:n] {
		v = v<<8 | uint64(b)
	}
	*s = (*s)[n:]
	return v * 0x0001_0001_0001_0001
}

func (s *source) IntN(n int) int { return int(s.Uint64() % uint64(n)) }

// access accesses what the data says.
func (m *machine) access(t require.TestingT, data []byte) {
	m.card.t, m.card.slow, m.card.busy = t, false, false
	require.NoError(t, m.Reset())
	m.drive()
	m.channel(1, driver.Graphics)
	m.Timeout = time.Microsecond
	var rows []uint64
	for _, row := range m.Registers().Rows() {
		rows = append(rows, uint64(row.Reg.Offset))
	}
	for r := (*source)(&data); len(*r) > 0; {
		p, off := make([]byte, 1<<r.IntN(4)), rows[r.IntN(len(rows))]+r.Uint64()%8
		le.PutUint64(append(p, make([]byte, 8)...)[:8], r.Uint64()>>r.IntN(64))
		bar := []int{0, 0, 0, 0, 0, 1, 3, 2, 6}[r.IntN(9)]
		if bar != 0 || r.IntN(8) == 0 {
			off = r.Uint64() % max(m.BARSize(bar), 1<<20)
		}
		switch r.IntN(10) {
		case 0, 1, 2:
			m.ReadBAR(bar, off, p)
		case 3, 4, 5:
			m.WriteBAR(bar, off, p)
		case 6: // the queues, and the list of their pages
			at := []int{0, 0x1000, 0x2000, 0x41000}[r.IntN(4)] + r.IntN(0x400)&^3
			le.PutUint32(m.card.ram[at:], uint32(r.Uint64())>>r.IntN(32))
			m.Write32(0x110c00, 0)
		case 7: // a boot, with wrong arguments
			le.PutUint32(m.card.ram[bootAt+r.IntN(0x400)&^3:], uint32(r.Uint64())>>r.IntN(32))
			func() {
				defer func() { _, _ = recover().(failure) }()
				m.Boot()
			}()
		case 8:
			m.Write32(0xbb0090, uint32(r.Uint64())>>r.IntN(32)&[]uint32{3, 1<<32 - 1}[r.IntN(2)])
		case 9:
			m.card.slow, m.card.busy = r.IntN(2) == 0, false
			[]func(){m.Done, func() { m.Completed(r.IntN(3)) }, func() { m.Failed(gh100.Failure{Channel: 1, Text: "text"}) },
				func() { require.NoError(t, m.Reset()) }, func() { m.WriteConfig(uint32(r.IntN(256)), p) }}[r.IntN(5)]()
		}
	}
}

// TestState: a virtual GPU that takes over a state goes on where the other was.
func TestState(t *testing.T) {
	a, b := newMachine(t), newMachine(t)
	c := a.channel(1, driver.Graphics)
	a.Write32(0xbb0090, 99)
	a.WriteConfig(0x68, []byte{5, 0x78, 1, 0})
	a.Completed(0)
	a.card.slow = true
	a.Send(10, driver.Fields{0: uint64(c.Client), 8: 0xf1f00001}.Bytes(16))
	st := a.State()
	for i := range reflect.TypeFor[gh100.State]().NumField() {
		require.False(t, reflect.ValueOf(st).Field(i).IsZero(), "field %d", i)
	}
	text, err := json.Marshal(st)
	require.NoError(t, err)
	var again gh100.State
	require.NoError(t, json.Unmarshal(text, &again))
	copy(b.card.ram, a.card.ram)
	require.NoError(t, b.SetState(again))
	require.Equal(t, st, b.State())
	require.True(t, b.line.Level && b.line.MSI)
	sent := le.Uint32(b.card.ram[0x41010:])
	b.Done()
	require.Equal(t, sent+1, le.Uint32(b.card.ram[0x41010:]), "the reply that was held")
	st.Version++
	require.ErrorContains(t, b.SetState(st), "version 2")
	require.Equal(t, 12+7, reflect.TypeFor[gh100.VGPU]().NumField()+reflect.TypeFor[devmodel.Function]().NumField(), "a new field belongs to the state, or can be made from it")
}
