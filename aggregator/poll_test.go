package aggregator

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// rare is a pace at which the test alone looks.
var rare = doorbell.Pace{Fast: time.Second, Slow: time.Second}

// look has the aggregator look at all bells once more, whoever else does.
func look(a *Aggregator) { (&doors{agg: a, most: homes.AtOnce}).Look() }

// sleeps reports whether nobody looks at bells for a while.
func sleeps(a *Aggregator) bool {
	looks := a.polled.Looks.Load()
	time.Sleep(20 * time.Millisecond)
	return a.polled.Looks.Load() == looks
}

// polledGuest is a guest whose client has mapped the poll area. The test writes to its
// memory past everybody, as the client's processors do.
func polledGuest(t testing.TB, a *Aggregator) *Guest {
	t.Helper()
	g := addGuestWith(t, a, GuestConfig{Doorbell: doorbell.Poll})
	openWindows(t, g)
	return g
}

func openWindows(t testing.TB, g *Guest) {
	t.Helper()
	require.NoError(t, g.OpenWindows(homes.Config{BAR0: 32 << 20, BAR1: 128 << 20, BAR3: 64 << 20}))
	t.Cleanup(func() { require.NoError(t, g.CloseWindows()) })
}

// store is a processor's store of GP_PUT to the page of channel id.
func store(g *Guest, id uint8, put uint32) {
	at, ok := g.extents.translate(userdAt+uint64(id)*gf100.USERDSize, gf100.USERDSize)
	if !ok {
		panic("no USERD")
	}
	g.agg.ctl.card.WriteVRAM(at+gf100.USERDGPPut, binary.LittleEndian.AppendUint32(nil, put))
}

// TestPolledBells: one look finds all that was written, each is rung once, and what
// the guest wrote is what the card gets.
func TestPolledBells(t *testing.T) {
	a, f := newAgg(t, Options{Pace: rare})
	g := polledGuest(t, a)
	for id := range uint8(4) {
		bindChannel(t, g, id)
	}
	look(a)
	require.Zero(t, g.stats.PolledDoorbells.Load(), "nothing was written")
	f.forget()
	require.Eventually(t, func() bool { return sleeps(a) }, patience, tick)
	looks := a.polled.Looks.Load()
	store(g, 0, 0x1234)
	time.Sleep(10 * time.Millisecond)
	if len(f.rings()) > 0 { // a look is counted when it has ended
		require.Eventually(t, func() bool { return a.polled.Looks.Load() > looks }, patience, tick, "nobody looked: what the test counts comes from looks")
	}
	store(g, 0, 0)
	f.forget()
	before := g.stats.PolledDoorbells.Load()
	for n := range uint64(50) {
		want := uint32(n) * 0x01010101 // also more than a ring has
		for id := range uint8(4) {
			store(g, id, want+1)
		}
		look(a)
		require.Equal(t, before+4*(n+1), g.stats.PolledDoorbells.Load())
		look(a)
		require.Equal(t, before+4*(n+1), g.stats.PolledDoorbells.Load(), "rung twice")
		bells := f.rings()
		require.Len(t, bells, 4)
		for _, b := range bells {
			require.Equal(t, want+1, b.v)
		}
		f.forget()
	}
	require.Equal(t, g.stats.Doorbells.Load(), g.stats.PolledDoorbells.Load())
}

// TestTrappedBellsAreNotFoundAgain: a client need not map what it is offered.
func TestTrappedBellsAreNotFoundAgain(t *testing.T) {
	a, f := newAgg(t, Options{Pace: rare})
	g := polledGuest(t, a)
	bindChannel(t, g, 1)
	f.forget()
	g.moving.Lock() // or the poller finds it before the trap: while pages move it does not look
	store(g, 1, 5)
	g.Doorbell(1)
	g.moving.Unlock()
	look(a)
	require.Zero(t, g.stats.PolledDoorbells.Load())
	require.Len(t, f.rings(), 1)
}

// TestNobodyLooksWhereBellsAreTrapped: a guest whose doorbells are trapped, or that
// has no channel that may run, costs nothing.
func TestNobodyLooksWhereBellsAreTrapped(t *testing.T) {
	a, _ := newAgg(t, Options{Pace: doorbell.Pace{Slow: time.Millisecond}})
	trapped := addGuestWith(t, a, GuestConfig{Map: homes.MapAll})
	openWindows(t, trapped)
	bindChannel(t, trapped, 1)
	cfg := GuestConfig{Name: "b", VRAM: 4 << 20, Tables: 2 << 20, Doorbell: doorbell.Poll}
	polled, err := a.AddGuest(cfg, &recorder{})
	require.NoError(t, err)
	openWindows(t, polled)
	sleeps := func() bool { return sleeps(a) }
	awake := func() bool { return !sleeps() }
	require.Eventually(t, sleeps, patience, tick)

	bindChannel(t, polled, 1)
	require.Eventually(t, awake, patience, tick, "a channel that may run")
	polled.Enable(1, false)
	require.Eventually(t, sleeps, patience, tick, "a channel that may not")
	polled.Enable(1, true)
	require.Eventually(t, awake, patience, tick)
	require.NoError(t, polled.Reset())
	require.Eventually(t, sleeps, patience, tick, "a reset guest")
	bindChannel(t, polled, 1)
	require.Eventually(t, awake, patience, tick)
	require.NoError(t, polled.CloseWindows())
	require.Eventually(t, sleeps, patience, tick, "a client that went")

	// A guest that puts its poll area where other windows are mapped is heard too.
	trapped.SetPollArea(1<<28 | 0x1000)
	require.Eventually(t, awake, patience, tick)
	require.EqualValues(t, 1, trapped.stats.Mapped.PollArea.Load())
	store(trapped, 1, 9)
	require.Eventually(t, func() bool { return trapped.stats.PolledDoorbells.Load() == 1 }, patience, tick)
	trapped.SetPollArea(1 << 28)
	require.Eventually(t, sleeps, patience, tick)
}

// TestPolledBellPaysFirst: what is owed to the channel's space is done before the card
// hears of the submission.
func TestPolledBellPaysFirst(t *testing.T) {
	a, f := newAgg(t, Options{Pace: rare})
	g := polledGuest(t, a)
	bindChannel(t, g, 1)
	require.True(t, g.eachRun(dirAt, []byte{1}, true))
	g.Invalidate(dirAt>>12<<4, gf100.InvalidateGo|gf100.InvalidateAllPages)
	require.EqualValues(t, 1, g.stats.LazyInvalidates.Load())
	scans := g.stats.Scans.Load()
	f.forget()
	store(g, 1, 3)
	look(a)
	settleRound(g)
	require.Equal(t, scans+1, g.stats.Scans.Load())
	require.Len(t, f.rings(), 1)
	look(a)
	require.EqualValues(t, 1, g.stats.PolledDoorbells.Load(), "rung again while it waited")
}

// TestUSERDIsShown: the guest reads what the card reports without a trap.
func TestUSERDIsShown(t *testing.T) {
	a, f := newAgg(t, Options{Pace: rare})
	g := polledGuest(t, a)
	bindChannel(t, g, 1)
	ch := g.cardChannel(1)
	seen := func() uint32 {
		at, _ := g.extents.translate(ch.userd, gf100.USERDSize)
		return a.ctl.readVRAM(at + gf100.USERDGPGet)
	}
	// The card is busy before the bell, and has its GP_PUT: others look, too, and one
	// that sees a channel with nothing to do is the last to look.
	f.set(regChannel+uint32(ch.id)*8, gf100.ChannelBusy|1)
	a.ctl.writeVRAM(ch.cardUSERD()+gf100.USERDGPPut, 7) // as a real card's BAR1 would
	store(g, 1, 7)
	look(a)
	look(a)
	for _, get := range []uint32{1, 4, 7} {
		a.ctl.writeVRAM(ch.cardUSERD()+gf100.USERDGPGet, get)
		look(a)
		require.Equal(t, get, seen())
	}
	f.set(regChannel+uint32(ch.id)*8, 1)
	look(a)
	g.mu.Lock()
	defer g.mu.Unlock()
	require.False(t, ch.userdStale, "there is nothing more to show")
}

// seenCard calls f at each access of its memory.
type seenCard struct {
	*fakeCard
	f atomic.Pointer[func()]
}

func (s *seenCard) ReadVRAM(addr uint64, p []byte) bool {
	if f := s.f.Load(); f != nil {
		(*f)()
	}
	return s.fakeCard.ReadVRAM(addr, p)
}

func (s *seenCard) WriteVRAM(addr uint64, p []byte) bool {
	if f := s.f.Load(); f != nil {
		(*f)()
	}
	return s.fakeCard.WriteVRAM(addr, p)
}

// TestLooksDoNotWaitForMoves: who looks at a guest's doorbells, with Guest.mu held, finds
// that its pages move and goes on, or has them wait until it has seen everything: none can
// begin to move in between, and have the looks at all other guests wait.
func TestLooksDoNotWaitForMoves(t *testing.T) {
	s := &seenCard{fakeCard: newFake(32 << 20)}
	a, err := NewWith(s, Options{Pace: rare})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	g := polledGuest(t, a)
	t.Cleanup(func() { require.NoError(t, g.Remove()) })
	bindChannel(t, g, 1)
	ch := g.cardChannel(1)
	s.set(regChannel+uint32(ch.id)*8, gf100.ChannelBusy|1) // it goes on having more to show
	store(g, 1, 7)
	look(a)

	seen, free := 0, 0
	f := func() {
		seen++
		if g.moving.TryLock() {
			g.moving.Unlock()
			free++
		}
	}
	for get := range uint32(3) {
		a.ctl.writeVRAM(ch.cardUSERD()+gf100.USERDGPGet, get)
		s.f.Store(&f)
		g.listen(new(unheard))
		s.f.Store(nil)
	}
	require.Greater(t, seen, 3*len(userdShown))
	require.Zero(t, free, "of %d accesses in %d looks, pages could have begun to move before so many", seen, 3)

	g.moving.Lock()
	defer g.moving.Unlock()
	store(g, 1, 9)
	look(a)
	require.EqualValues(t, 1, g.stats.PolledDoorbells.Load(), "found while pages moved")
}

// TestLooksAreBounded: what one look does is bounded, however many channels and guests
// there are and whatever they write; and it makes no garbage.
func TestLooksAreBounded(t *testing.T) {
	f := newFake(fakeVRAM)
	a, err := NewWith(f.quiet(), Options{Pace: rare})
	require.NoError(t, err)
	g := polledGuest(t, a)
	for id := range uint8(8) {
		bindChannelAt(t, g, id, dirAt)
	}
	d := &doors{agg: a, most: homes.AtOnce}
	n := uint32(0)
	rang := 0
	own := a.polled.Looks.Load()
	allocs := testing.AllocsPerRun(100, func() {
		n++
		for id := range uint8(8) {
			at, _ := g.extents.translate(userdAt+uint64(id)*gf100.USERDSize, gf100.USERDSize)
			a.ctl.writeVRAM(at+gf100.USERDGPPut, n)
		}
		r, watched := d.Look()
		rang += r
		if watched != 8 {
			panic("not all are looked at")
		}
	})
	if !raceDetector {
		require.Zero(t, allocs)
	}
	require.LessOrEqual(t, rang, 8*101)
	own = a.polled.Looks.Load() - own // a look that was under way began before
	require.GreaterOrEqual(t, rang, 8*(101-int(own)-1), "the poller itself found the others")
	require.Less(t, own, uint64(50), "the poller finds them all")
	require.NoError(t, g.Remove())
	require.NoError(t, a.Close())
}

// idleGuests makes n guests that do nothing, with four channels each.
func idleGuests(t testing.TB, p doorbell.Pace, n int) *Aggregator {
	t.Helper()
	a, err := NewWith(newFake(512<<20).quiet(), Options{Pace: p})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	for i := range n {
		g, err := a.AddGuest(GuestConfig{
			Name: fmt.Sprint(i), VRAM: 4 << 20, Tables: 2 << 20, Channels: 4, Doorbell: doorbell.Poll,
		}, &recorder{})
		require.NoError(t, err)
		openWindows(t, g)
		for id := range uint8(4) {
			bindChannelAt(t, g, id, dirAt)
		}
	}
	return a
}

// TestIdleGuests: guests that do nothing are looked at as seldom as the pace says, all in
// one look, once the wait has grown. What it took is logged: no time is held against a limit.
func TestIdleGuests(t *testing.T) {
	const (
		grow = 80 // looks until then: the wait is 50 us at first, and an eighth of the time since the last poke
		slow = 50 * time.Millisecond
	)
	a := idleGuests(t, doorbell.Pace{}, MaxGuests)
	begin := time.Now() // around the counts: whoever is late has more time, not more looks
	looks, cpu := a.polled.Looks.Load(), a.polled.CPU.Load()
	time.Sleep(3 * time.Second / 2)
	looks, cpu = a.polled.Looks.Load()-looks, a.polled.CPU.Load()-cpu
	took := time.Since(begin)
	t.Logf("%d guests: %d looks in %v, %.2f %% of a processor", MaxGuests, looks, took, 100*float64(cpu)/float64(took))
	require.NotZero(t, looks)
	require.LessOrEqual(t, looks, grow+uint64(took/slow))
}

// BenchmarkIdleLook is one look at guests that do nothing: what an idle card costs forty
// times a second.
func BenchmarkIdleLook(b *testing.B) {
	for _, n := range []int{1, MaxGuests} {
		b.Run(fmt.Sprintf("guests=%d", n), func(b *testing.B) {
			d := &doors{agg: idleGuests(b, rare, n), most: homes.AtOnce}
			b.ReportAllocs()
			for b.Loop() {
				if rang, watched := d.Look(); rang != 0 || watched != 4*n {
					b.Fatal(rang, watched)
				}
			}
		})
	}
}
