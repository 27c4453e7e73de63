package aggregator

import (
	"fmt"
	"github.com/umbra-gpu/umbra/aggregator/window"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// movingCard begins to move a guest's pages at one of the accesses that the guest's worker makes
// of the card, and checks what is done on the card meanwhile.
type movingCard struct {
	*fakeCard
	guest    *Guest
	left     atomic.Int64 // accesses until then; negative: not counted
	quiesced atomic.Bool
	ids      []uint32 // that are quiesced
	moved    chan struct{}
	wrong    []string
}

const quietFor = 5 * time.Millisecond // a step that does not wait for the move takes microseconds

func (m *movingCard) access() {
	if m.guest == nil || m.left.Add(-1) != -1 {
		return
	}
	begun := make(chan struct{})
	m.moved = make(chan struct{})
	go func() {
		defer close(m.moved)
		window.Owner(m.guest.BARs).Quiesce(func() {
			close(begun)
			time.Sleep(quietFor)
			m.quiesced.Store(false)
		})
	}()
	<-begun
}

func (m *movingCard) QuiesceChannels(ids []uint32, do func()) {
	m.ids = ids
	m.quiesced.Store(true)
	do()
}

func (m *movingCard) Read32(bar int, off uint64) uint32 {
	m.access()
	return m.fakeCard.Read32(bar, off)
}

func (m *movingCard) Write32(bar int, off uint64, v uint32) {
	m.access()
	m.fakeCard.Write32(bar, off, v)
	for id := range uint32(2) {
		if m.quiesced.Load() && m.Enabled(id) && !slices.Contains(m.ids, id) {
			m.wrong = append(m.wrong, fmt.Sprintf("channel %d is enabled, and only %d are quiesced", id, m.ids))
		}
	}
}

// ours reports whether the worker touches the guest's memory: nobody moves it then.
func (m *movingCard) ours(addr uint64) bool {
	return m.guest != nil && slices.ContainsFunc(m.guest.Extents(), func(e vram.Extent) bool { return addr >= e.Card && addr-e.Card < e.Size })
}

func (m *movingCard) ReadVRAM(addr uint64, p []byte) bool {
	if !m.ours(addr) {
		m.access()
	}
	return m.fakeCard.ReadVRAM(addr, p)
}

func (m *movingCard) WriteVRAM(addr uint64, p []byte) bool {
	if !m.ours(addr) {
		m.access()
	} else if m.quiesced.Load() {
		m.wrong = append(m.wrong, fmt.Sprintf("%#x of the guest's is written", addr))
	}
	return m.fakeCard.WriteVRAM(addr, p)
}

// TestNoChannelBeginsWhilePagesMove: a channel that stays on its guest's runlist is bound anew, in
// another space. At whatever access of the card pages begin to move, no channel of the guest
// begins to run meanwhile but those that are quiesced, and nothing is written to its memory.
func TestNoChannelBeginsWhilePagesMove(t *testing.T) {
	const otherDir, table = 0x140000, 0x180000
	outside := 0
	for at := int64(0); ; at++ {
		m := &movingCard{fakeCard: fakecard.New(32 << 20)}
		m.left.Store(-1)
		a, err := newAggWith(t, m, patience, Options{})
		require.NoError(t, err)
		g := addGuestWith(t, a, GuestConfig{})
		bindChannel(t, g, 1)
		was := g.cardChannel(1)
		writeEntry(t, g, otherDir, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}.Encode())
		writeEntry(t, g, table, shadowpt.PTE{Valid: true, Addr: 0x1000}.Encode())
		s := gpu(g).State()
		s.Inst[1] = writeInstance(t, g, 2, otherDir, 0)
		require.NoError(t, gpu(g).SetState(s))

		g.mu.Lock()
		g.bind(1, true)
		m.guest = g
		m.left.Store(at)
		g.await()
		g.mu.Unlock()
		came := m.left.Load() < 0
		if m.moved != nil {
			<-m.moved
			if !slices.Contains(m.ids, number(g, 1)) {
				outside++
			}
		}
		m.left.Store(-1 << 32)
		require.Empty(t, m.wrong, "pages began to move at access %d", at)
		require.NotSame(t, was, g.cardChannel(1))
		require.True(t, m.Enabled(number(g, 1)))
		require.NoError(t, g.Remove())
		require.NoError(t, a.Close())
		if !came {
			require.Greater(t, at, int64(20), "too few accesses to bind a channel")
			break
		}
	}
	require.NotZero(t, outside, "pages never began to move while the guest had no channel")
}

// TestCardWithoutRelocation: if the card's pages have one place, all accesses of windows trap.
func TestCardWithoutRelocation(t *testing.T) {
	a, err := newAggWith(t, struct{ card.Registers }{fakecard.New(fakeVRAM)}, patience, Options{})
	require.NoError(t, err)
	g := addGuestWith(t, a, GuestConfig{Map: aperture.MapAll})
	openWindows(t, g)
	require.Empty(t, g.Regions())
	require.NoError(t, g.Remove())
	require.NoError(t, a.Close())
}
