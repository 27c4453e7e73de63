package aggregator

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/drivertest"
	"github.com/umbra-gpu/umbra/aggregator/vram"
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

// movingCard begins to move a guest's pages at one of the accesses that the guest's worker makes
// of the card, and checks what is done on the card meanwhile.
type movingCard struct {
	*fakeCard
	guest    *Guest
	left     atomic.Int64 // accesses until then; negative: not counted
	quiesced atomic.Bool
	ids      []uint8 // that are quiesced
	moved    chan struct{}
	wrong    []string
}

const quietFor = 5 * time.Millisecond // a step that does not wait for the move takes microseconds

func (m *movingCard) access() {
	if m.guest == nil || m.left.Add(-1) != -1 {
		return
	}
	if !m.guest.moving.TryLock() { // the worker touches the guest's memory: nobody moves it
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

func (m *movingCard) QuiesceChannels(ids []uint8, do func()) {
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
	for id := range uint8(2) {
		if m.quiesced.Load() && m.Enabled(id) && !slices.Contains(m.ids, id) {
			m.wrong = append(m.wrong, fmt.Sprintf("channel %d is enabled, and only %d are quiesced", id, m.ids))
		}
	}
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

// TestNoChannelBeginsWhilePagesMove: a channel that stays on its guest's runlist is bound anew, in
// another space. At whatever access of the card pages begin to move, no channel of the guest
// begins to run meanwhile but those that are quiesced, and nothing is written to its memory.
func TestNoChannelBeginsWhilePagesMove(t *testing.T) {
	const otherDir, table = 0x140000, 0x180000
	outside := 0
	for at := int64(0); ; at++ {
		m := &movingCard{fakeCard: drivertest.New(32 << 20)}
		m.left.Store(-1)
		a, err := newAggWith(t, m, patience, Options{})
		require.NoError(t, err)
		g := addGuestWith(t, a, GuestConfig{})
		bindChannel(t, g, 1)
		was := g.cardChannel(1)
		writeEntry(t, g, otherDir, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}.Encode())
		writeEntry(t, g, table, shadowpt.PTE{Valid: true, Addr: 0x1000}.Encode())
		inst := writeInstance(t, g, 2, otherDir, 0)

		g.mu.Lock()
		g.setBound(1, inst, true)
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
			require.Greater(t, at, int64(30), "too few accesses to bind a channel")
			break
		}
	}
	require.NotZero(t, outside, "pages never began to move while the guest had no channel")
}

// relocations is a card that records moves of pages, and makes none.
type relocations struct {
	*fakeCard
	list []card.Relocation
}

func (c *relocations) Relocate(r card.Relocation) (uint64, error) {
	c.list = append(c.list, r)
	return r.Size, nil
}

// TestMovesEndWithExtents: pages that are adjacent for the guest only are moved separately, and
// each to its own place in the file.
func TestMovesEndWithExtents(t *testing.T) {
	f := &relocations{fakeCard: drivertest.New(16 << 20)}
	a := newAggOn(t, f, patience, Options{})
	fragment(t, a, 1<<20+128<<10, 512<<10, 128<<10, 256<<10, 128<<10)
	g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 1 << 20, Tables: 1 << 20})
	extents := g.Extents()
	require.Greater(t, len(extents), 2)
	last := extents[len(extents)-1]
	var want []card.Relocation
	from, to := uint64(vram.PageSize), last.Guest+last.Size-vram.PageSize
	for _, e := range extents {
		at, end := max(e.Guest, from), min(e.Guest+e.Size, to)
		want = append(want, card.Relocation{Addr: e.Card + at - e.Guest, Size: end - at, Off: at})
	}
	done, err := owner{g}.Relocate(card.Relocation{Addr: from, Size: to - from, Off: from})
	require.NoError(t, err)
	require.Equal(t, to-from, done)
	require.Equal(t, want, f.list)
}

// scarce is a card with a limited number of mappings.
type scarce struct {
	*fakeCard
	mappings int
}

func (s scarce) MaxMappings() int { return s.mappings }

// TestMappingsAreShared: guests come and go, and open and close windows, in any order. Together
// they never have more mappings than there are, each has enough for its limit on runs, and one
// that wants no more than the least always gets it.
func TestMappingsAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.IntRange(MaxGuests*(leastMappings+2), 20000).Draw(t, "mappings")
		a, err := newAggWith(t, scarce{drivertest.New(64 << 20), all}, patience, Options{})
		require.NoError(t, err)
		var guests []*Guest
		remove := func(i int) {
			require.NoError(t, guests[i].CloseWindows())
			require.Zero(t, guests[i].mappings)
			require.NoError(t, guests[i].Remove())
			guests = append(guests[:i], guests[i+1:]...)
		}
		defer func() {
			for len(guests) > 0 {
				remove(0)
			}
			require.NoError(t, a.Close())
		}()
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(guests) > 0 && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				remove(rapid.IntRange(0, len(guests)-1).Draw(t, "guest"))
				continue
			}
			if len(guests) == 8 {
				continue
			}
			want := rapid.IntRange(1, 9000).Draw(t, "runs")
			g, err := a.AddGuest(GuestConfig{
				Name: fmt.Sprint(step), VRAM: 2 << 20, Tables: 1 << 20, Map: aperture.MapPRAMIN, MapLimits: aperture.Limits{Runs: want},
			}, newRecorder())
			require.NoError(t, err)
			guests = append(guests, g)
			require.NoError(t, g.OpenWindows(aperture.Config{BAR0: 32 << 20, BAR1: 128 << 20, BAR3: 64 << 20}))
			runs, sum := int(g.stats.Mapped.MostRuns.Load()), 0
			require.LessOrEqual(t, runs, want)
			require.GreaterOrEqual(t, runs, min(want, 64))
			require.LessOrEqual(t, 2*runs, g.mappings)
			for _, g := range guests {
				sum += g.mappings
			}
			require.LessOrEqual(t, sum, all)
		}
	})
	g := addGuestWith(t, newAggOn(t, scarce{drivertest.New(64 << 20), 300}, patience, Options{}), GuestConfig{Map: aperture.MapPRAMIN})
	require.ErrorContains(t, g.OpenWindows(aperture.Config{BAR0: 32 << 20}), "raise vm.max_map_count, or lower limits.map-runs")
}

// TestCardWithoutRelocation: if the card's pages have one place, all accesses of windows trap.
func TestCardWithoutRelocation(t *testing.T) {
	a, err := newAggWith(t, struct{ card.Registers }{drivertest.New(fakeVRAM)}, patience, Options{})
	require.NoError(t, err)
	g := addGuestWith(t, a, GuestConfig{Map: aperture.MapAll})
	openWindows(t, g)
	require.Empty(t, g.Windows())
	require.NoError(t, g.Remove())
	require.NoError(t, a.Close())
}
