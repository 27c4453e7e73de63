package aggregator

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestMappedWindowOutside: an access outside of its memory is counted, trapped or not, and
// no other access is.
func TestMappedWindowOutside(t *testing.T) {
	for _, c := range []struct {
		name           string
		mapped         aperture.Map
		points, access uint64 // what is counted for each
	}{
		{"trapped", aperture.MapNone, 0, 1},
		{"mapped", aperture.MapAll, 1, 1}, // a client need not map what is offered
		{"others mapped", aperture.MapBAR1 | aperture.MapBAR3, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := newAgg(t, Options{})
			g := addGuestWith(t, a, GuestConfig{Map: c.mapped})
			openWindows(t, g)
			last := uint32((g.extents.Size() - 1) >> 16)
			word := make([]byte, 4)
			g.SetPRAMIN(last)
			g.ReadPRAMIN(last, 0, word)
			g.SetPRAMIN(2<<24 | last + 1) // system memory
			require.Zero(t, g.stats.BadWindow.Load())
			for _, win := range []uint32{last + 1, 1<<24 - 1} {
				before := g.stats.BadWindow.Load()
				g.SetPRAMIN(win)
				require.Equal(t, before+c.points, g.stats.BadWindow.Load())
				g.ReadPRAMIN(win, 0, word)
				require.Equal(t, before+c.points+c.access, g.stats.BadWindow.Load())
			}
		})
	}
}

// movingCard begins to move a guest's pages at one of the accesses of the guest's goroutine
// to the card, and checks the operations of the card during the move.
type movingCard struct {
	*fakeCard
	guest    *Guest
	left     atomic.Int64 // accesses until then; negative: not counted
	quiesced atomic.Bool
	ids      []uint8 // that are quiesced
	moved    chan struct{}
	wrong    []string
}

const quietFor = 5 * time.Millisecond // a step that does not wait ends within microseconds

func (m *movingCard) access() {
	if m.guest == nil || m.left.Add(-1) != -1 {
		return
	}
	if !m.guest.moving.TryLock() { // the goroutine is accessing the guest's memory: pages cannot move
		return
	}
	m.guest.moving.Unlock()
	begun := make(chan struct{})
	m.moved = make(chan struct{})
	go func() {
		defer close(m.moved)
		owner{m.guest}.Quiesce(func() {
			close(begun)
			time.Sleep(quietFor)
			m.quiesced.Store(false)
		})
	}()
	<-begun
}

func (m *movingCard) Quiesce(ids []uint8, do func()) {
	m.ids = ids
	m.quiesced.Store(true)
	do()
}

func (m *movingCard) ReadBAR(bar int, off uint64, p []byte) {
	m.access()
	m.fakeCard.ReadBAR(bar, off, p)
}

func (m *movingCard) WriteBAR(bar int, off uint64, p []byte) {
	m.access()
	if reg := uint32(off) - regChannelInst; m.quiesced.Load() && bar == card.BAR0 && reg < gf100.Channels*strideChannel && reg%strideChannel == 0 {
		if id := uint8(reg / strideChannel); binary.LittleEndian.Uint32(p)&gf100.InstanceBound != 0 && !slices.Contains(m.ids, id) {
			m.wrong = append(m.wrong, fmt.Sprintf("channel %d is bound, and only %d are quiesced", id, m.ids))
		}
	}
	m.fakeCard.WriteBAR(bar, off, p)
}

func (m *movingCard) ReadVRAM(addr uint64, p []byte) bool {
	m.access()
	return m.fakeCard.ReadVRAM(addr, p)
}

func (m *movingCard) WriteVRAM(addr uint64, p []byte) bool {
	m.access()
	if m.quiesced.Load() && slices.ContainsFunc(m.guest.extents.List(), func(e vram.Extent) bool { return addr >= e.Card && addr-e.Card < e.Size }) {
		m.wrong = append(m.wrong, fmt.Sprintf("%#x of the guest's is written", addr))
	}
	return m.fakeCard.WriteVRAM(addr, p)
}

// TestNoChannelBeginsWhilePagesMove: a channel that stays on its guest's runlist is bound
// again, in another space. Pages begin to move at any one of the card's accesses. During
// the move, only quiesced channels of the guest are bound, and its memory is not written.
func TestNoChannelBeginsWhilePagesMove(t *testing.T) {
	const otherDir, table = 0x140000, 0x180000
	outside := 0
	for at := int64(0); ; at++ {
		m := &movingCard{fakeCard: newFake(32 << 20)}
		m.left.Store(-1)
		a, err := NewWith(m, Options{})
		require.NoError(t, err)
		g := addGuestWith(t, a, GuestConfig{})
		bindChannel(t, g, 1)
		list(t, g, 1)
		was := g.cardChannel(1)
		pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}
		require.True(t, g.eachRun(otherDir, binary.LittleEndian.AppendUint64(nil, pde.Encode()), true))
		require.True(t, g.eachRun(table, binary.LittleEndian.AppendUint64(nil, shadowpt.PTE{Valid: true, Addr: 0x1000}.Encode()), true))
		block := make([]byte, gf100.InstanceSize)
		require.True(t, g.read(shadowpt.VRAM, instAt+1*gf100.InstanceSize, block))
		gf100.InstPDBLo.Put(block, otherDir>>12)
		require.True(t, g.eachRun(instAt, block, true))

		g.mu.Lock()
		g.setBound(1, instAt, true)
		m.guest = g
		m.left.Store(at)
		g.await()
		g.mu.Unlock()
		came := m.left.Load() < 0
		if m.moved != nil {
			<-m.moved
			if ch := g.cardChannel(1); !slices.Contains(m.ids, ch.id) {
				outside++
			}
		}
		m.left.Store(-1 << 32)
		require.Empty(t, m.wrong, "pages began to move at access %d", at)
		require.NotSame(t, was, g.cardChannel(1))
		require.Equal(t, []uint32{uint32(g.cardChannel(1).id)}, m.runlist())
		require.NoError(t, g.Remove())
		require.NoError(t, a.Close())
		if !came {
			require.Greater(t, at, int64(40), "too few accesses to bind a channel")
			break
		}
	}
	require.NotZero(t, outside, "pages never began to move while the guest had no channel")
}
