package aggregator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// aliased is how many replicas a guest may have.
const aliased = 1024

// aliasPages are the pages that an aliasing guest shows in many places: those of USERD.
const aliasPages = 16

// aliasing is a polled guest of which n places of BAR1 show pages that live elsewhere, and that
// has a channel.
func aliasing(t testing.TB, a *Aggregator, n int) *Guest {
	t.Helper()
	g := aliasingWith(t, a, doorbell.Poll, n)
	bindChannel(t.(*testing.T), g, 1)
	return g
}

// aliasingWith is aliasing for a guest without a channel. Its pages are shown in turn, from the
// first place behind the poll area on; they live at the first places that show them.
func aliasingWith(t testing.TB, a *Aggregator, bells doorbell.Mode, n int) *Guest {
	t.Helper()
	const barInst, barDir, barTable = 0x50000, 0x280000, 0x300000
	g := addGuestWith(t, a, GuestConfig{Doorbell: bells, Map: homes.MapBAR1})
	openWindows(t, g)
	block := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(block, barDir>>12)
	gf100.InstLimitLo.Put(block, 128<<20-1)
	require.True(t, g.eachRun(barInst, block, true))
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: barTable}}
	require.True(t, g.eachRun(barDir, binary.LittleEndian.AppendUint64(nil, pde.Encode()), true))
	var entries []byte
	for i := range n + aliasPages {
		pte := shadowpt.PTE{Valid: true, Addr: userdAt + uint64(i%aliasPages)<<12}
		entries = binary.LittleEndian.AppendUint64(entries, pte.Encode())
	}
	require.True(t, g.eachRun(barTable+gf100.PollSize/pageSize*8, entries, true))
	g.SetBlock(card1, gf100.BlockVirtual|barInst>>12)
	require.EqualValues(t, n, g.stats.Mapped.Replicas.Load())
	return g
}

const card1 = 1 // BAR1

// held has a guest's goroutine wait until it is let go, as one that has spent its rate.
func held(t *testing.T, g *Guest) (letGo func()) {
	settle(g)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tableBudget.spend(time.Now(), 1, 1e15)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.tableBudget = leakyBucket{}
		g.wake.Broadcast()
	}
}

// TestDearGuestsLookForThemselves: a guest that has as many replicas as it may has its own
// goroutine look at its doorbells, and pays for it. While that waits, each look finds its
// neighbour's, and compares nothing of this one's. One that has few is looked at with
// everybody. The control is who looks without a bound.
func TestDearGuestsLookForThemselves(t *testing.T) {
	for _, c := range []struct {
		replicas, most int
		own            bool
	}{
		{aliased, homes.AtOnce, true},
		{homes.AtOnce/pageSize + 1, homes.AtOnce, true},
		{homes.AtOnce / pageSize, homes.AtOnce, false},
		{aliased, math.MaxInt, false}, // as it would be without
	} {
		t.Run(fmt.Sprint(c.replicas, "of", c.most), func(t *testing.T) {
			const looks = 50
			a, _ := newHoming(t, Options{Pace: rare})
			dear := aliasing(t, a, c.replicas)
			b, err := a.AddGuest(GuestConfig{Name: "b", VRAM: 4 << 20, Tables: 2 << 20, Doorbell: doorbell.Poll}, &recorder{})
			require.NoError(t, err)
			openWindows(t, b)
			bindChannel(t, b, 1)
			require.Eventually(t, func() bool { return sleeps(a) }, patience, tick)
			letGo := held(t, dear)
			d := &doors{agg: a, most: c.most}
			d.Look()
			n, gathered, most := uint32(0), uint64(0), uint64(0)
			look := func() {
				n++
				store(dear, 1, n)
				store(b, 1, n)
				before, reconciled := dear.stats.Mapped.Gathers.Load(), dear.stats.Mapped.Reconciles.Load()
				d.Look()
				gathered += dear.stats.Mapped.Gathers.Load() - before
				most = max(most, dear.stats.Mapped.Reconciles.Load()-reconciled)
			}
			for range looks {
				look()
			}
			require.GreaterOrEqual(t, b.stats.PolledDoorbells.Load(), uint64(looks))
			require.Zero(t, b.stats.OwnLooks.Load())
			level := func() float64 {
				dear.mu.Lock()
				defer dear.mu.Unlock()
				return dear.tableBudget.level
			}
			if !c.own {
				compared := func() bool { // not while they are being freshened
					look()
					return gathered > 0 && most >= uint64(c.replicas) && dear.stats.PolledDoorbells.Load() > 0
				}
				require.Eventually(t, compared, patience, tick, "nothing is compared in a look at everybody's")
				require.Zero(t, dear.stats.OwnLooks.Load())
				return
			}
			require.Zero(t, gathered, "compared in a look at everybody's")
			require.Zero(t, dear.stats.PolledDoorbells.Load(), "who is to find them waits")
			polled := a.polled.Looks.Load()
			letGo()
			require.Eventually(t, func() bool { return dear.stats.PolledDoorbells.Load() > 0 }, patience, tick)
			settle(dear)
			own := dear.stats.OwnLooks.Load()
			require.NotZero(t, own)
			// The poller asks once a second, too; what it began is counted when it has ended.
			require.LessOrEqual(t, own, 2+a.polled.Looks.Load()-polled, "they were asked for many times, and are done once")
			require.Greater(t, level(), 0., "it has paid")
			require.EqualValues(t, looks, dear.cardChannel(1).lastPut)
		})
	}
}

// TestOwnLooksKeepToTheRate: a guest whose doorbells its own goroutine looks for, and that
// rings all the time, gets no more looks than its rate pays for.
func TestOwnLooksKeepToTheRate(t *testing.T) {
	const rate = 1 << 10 // so little that a look beyond the burst is waited for by minutes
	const each = perCompared * aliased * pageSize
	a, _ := newHoming(t, Options{Pace: rare, TableRate: rate})
	g := aliasing(t, a, aliased)
	d := &doors{agg: a, most: homes.AtOnce}
	burst := 4 * float64(g.limits.Tables)
	begin := time.Now() // around the counts: whoever is late has more time, not more looks
	before := g.stats.PolledDoorbells.Load()
	looks := func() float64 { return float64(g.stats.PolledDoorbells.Load() - before) } // those that had to order anything
	paid := func() float64 { return (rate*time.Since(begin).Seconds()+burst)/each + 1 }
	n := uint32(0)
	ring := func() {
		n++
		store(g, 1, n)
		d.Look()
	}
	spent := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.tableBudget.due(time.Now(), rate, burst) > 0
	}
	rested := func() bool { // it has done what was left to it
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.pending.empty() && g.current.empty()
	}
	spend := func() bool {
		if rested() {
			ring()
		}
		return spent()
	}
	require.Eventually(t, spend, patience, tick, "it pays for nothing")
	held := func() bool {
		ring()
		g.lookUp() // what it has waited is counted when it wakes
		return g.stats.ThrottleTime.Load() > 0 || looks() > paid()
	}
	require.Eventually(t, held, patience, tick, "it was never held back")
	for range 100 {
		ring()
	}
	got := looks()
	t.Logf("%.0f looks of %d, %.0f are paid for", got, n, paid())
	require.NotZero(t, got)
	require.LessOrEqual(t, got, paid())
}

// TestStrayBellsOfDearGuests: bells that may be written where windows do not expect them are
// brought to where they are looked for by the guest itself, if they may be in many places.
func TestStrayBellsOfDearGuests(t *testing.T) {
	a, _ := newHoming(t, Options{Pace: rare})
	g := aliasing(t, a, aliased)
	const shown = aliased / aliasPages // places that show the channel's page, besides its home
	g.SetPollArea(1<<28 | (gf100.PollSize>>12 + 1))
	require.EqualValues(t, 1, g.stats.Mapped.PollArea.Load())
	set := g.mapped.Load()
	page := []uint64{userdAt + gf100.USERDSize}
	within := func(want homes.Outcome, f func() homes.Outcome) {
		t.Helper()
		came := homes.Busy
		for came == homes.Busy { // they are being freshened, by whoever wants the processor for it
			came = f()
			runtime.Gosched()
		}
		require.Equal(t, want, came)
	}
	var pages [gf100.Channels]uint64
	require.Equal(t, page, slices.Clone(g.strays(&pages)))
	bindChannel(t, g, 2)
	require.Len(t, g.strays(&pages), 2)
	block := make([]byte, gf100.InstanceSize)
	inst := uint64(instAt + 2*gf100.InstanceSize)
	require.True(t, g.eachRun(inst, block, false))
	gf100.InstUSERDLo.Put(block, uint32(page[0]>>12))
	require.True(t, g.eachRun(inst, block, true))
	g.Bind(2, gf100.InstanceBound|uint32(inst>>12))
	settle(g)
	require.Equal(t, page, slices.Clone(g.strays(&pages)), "of two channels with their bells in one page")
	gatherWithin := func(most int) homes.Outcome { out, _ := set.GatherWithin(most); return out }
	freshWithin := func(most int) homes.Outcome { out, _ := set.FreshWithin(most, page); return out }
	within(homes.TooMuch, func() homes.Outcome { return freshWithin(shown*pageSize - 1) })
	within(homes.Done, func() homes.Outcome { return freshWithin(shown * pageSize) })
	require.Equal(t, homes.Work{Compared: shown * pageSize}, set.FreshAll(page))
	within(homes.TooMuch, func() homes.Outcome { return gatherWithin(aliased*pageSize - 1) })
	within(homes.Done, func() homes.Outcome { return gatherWithin(aliased * pageSize) })
	require.Equal(t, aliased*pageSize, set.GatherAll().Compared)

	before := g.stats.OwnLooks.Load()
	d := &doors{agg: a, most: 0}
	looked := func() bool {
		d.Look()
		return g.stats.OwnLooks.Load() > before
	}
	require.Eventually(t, looked, patience, tick, "nothing has rung, but who knows")
	store(g, 1, 3)
	require.Eventually(t, func() bool { d.Look(); return g.stats.PolledDoorbells.Load() > 0 }, patience, tick)
}

// TestBellsBehindMuchAreLeft: so is a look of which more goes over than others should wait for,
// however little is compared. The control is who rings without having stored.
func TestBellsBehindMuchAreLeft(t *testing.T) {
	const replicas = homes.AtOnce / pageSize
	a, _ := newHoming(t, Options{Pace: rare})
	g := aliasing(t, a, replicas)
	file := g.Windows()[0].File
	require.Eventually(t, func() bool { return sleeps(a) }, patience, tick)
	d := &doors{agg: a, most: homes.AtOnce}
	n := uint32(0)
	ring := func() {
		n++
		store(g, 1, n)
		d.Look()
	}
	for range 50 {
		ring()
	}
	require.Eventually(t, func() bool { ring(); return g.stats.PolledDoorbells.Load() > 0 }, patience, tick)
	require.Zero(t, g.stats.OwnLooks.Load())
	own := func() bool { // who freshens replicas may have been there before the look
		for i := range int64(aliasPages) {
			if i == 1 {
				continue // it has the channel's bell
			}
			_, err := file.WriteAt(bytes.Repeat([]byte{byte(n) + 1}, pageSize), gf100.PollSize+(aliasPages+i)*pageSize)
			assert.NoError(t, err)
		}
		ring()
		return g.stats.OwnLooks.Load() > 0
	}
	require.Eventually(t, own, patience, tick)
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.channels[1].ch.lastPut == n
	}, patience, tick)
}

// TestMergesArePaidFor: what has gone over in a look at everybody's bells, or in a trap, its guest
// pays for; the control is who has stored nothing else.
func TestMergesArePaidFor(t *testing.T) {
	const replicas = homes.AtOnce / pageSize
	a, _ := newHoming(t, Options{Pace: rare, TableRate: 1}) // nothing is forgiven
	g := aliasing(t, a, replicas)
	file := g.Windows()[0].File
	require.Eventually(t, func() bool { return sleeps(a) }, patience, tick)
	d := &doors{agg: a, most: homes.AtOnce}
	n := uint32(0)
	for name, bell := range map[string]func(){"look": func() { d.Look() }, "trap": func() { g.Doorbell(1) }} {
		for _, stores := range []bool{false, true} {
			paid := func() bool { // who freshens replicas may have been there before
				settle(g)
				n++
				if stores {
					_, err := file.WriteAt([]byte{byte(n) + 1}, gf100.PollSize+aliasPages*pageSize)
					assert.NoError(t, err)
				}
				store(g, 1, n)
				g.mu.Lock()
				g.tableBudget = leakyBucket{}
				rounds := g.begun
				g.mu.Unlock()
				bell()
				g.mu.Lock()
				defer g.mu.Unlock()
				return g.tableBudget.level > 0 && g.begun == rounds && g.pending.empty() // and not by the guest's goroutine
			}
			if stores {
				require.Eventually(t, paid, patience, tick, name)
				continue
			}
			for range 20 {
				require.False(t, paid(), name)
			}
		}
	}
	require.Zero(t, g.stats.OwnLooks.Load())
}

// TestBellWithoutNews: a trapped store of GP_PUT as it stands is no reason not to ring what a
// look has found.
func TestBellWithoutNews(t *testing.T) {
	a, _ := newHoming(t, Options{Pace: rare})
	g := aliasing(t, a, 1)
	require.Eventually(t, func() bool { return sleeps(a) }, patience, tick)
	trapped, news := g.readPut(1)
	require.False(t, news)
	store(g, 1, 1) // by another processor of the guest's
	var bells unheard
	require.Eventually(t, func() bool {
		g.gather()
		g.listen(&bells)
		return bells.n > 0
	}, patience, tick)
	g.mu.Lock()
	g.ring(1, g.notePut(trapped))
	g.mu.Unlock()
	require.Equal(t, 1, g.ringUnheard(&bells))
}

// TestNewsIsOfItsHearing: what was found of a channel before somebody else heard of it is not
// heard of again, though GP_PUT has come round to where it was.
func TestNewsIsOfItsHearing(t *testing.T) {
	a, _ := newHoming(t, Options{Pace: rare})
	g := aliasing(t, a, 1)
	require.Eventually(t, func() bool { return sleeps(a) }, patience, tick)
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels[1].ch
	late := putRead{ch, ch.putSeq, ch.lastPut + 1}
	for _, put := range []uint32{ch.lastPut + 2, ch.lastPut} {
		assert.True(t, g.notePut(putRead{ch, ch.putSeq, put}))
	}
	assert.False(t, g.notePut(late))
	assert.True(t, g.notePut(putRead{ch, ch.putSeq, late.put}), "which is found anew")
}

// TestDearBellsAreLeft: a doorbell of a guest that has little in many places reaches the card
// in the trap, after a gather; of one that has more, the guest's goroutine does both.
func TestDearBellsAreLeft(t *testing.T) {
	for _, replicas := range []int{homes.AtOnce / pageSize, homes.AtOnce/pageSize + 1} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			a, c := newHoming(t, Options{Pace: rare})
			g := aliasing(t, a, replicas)
			require.Eventually(t, func() bool { return sleeps(a) }, patience, tick)
			id := uint32(g.cardChannel(1).id)
			told := func(put uint32) bool { return slices.Contains(c.rings(), regWrite{id, put}) }
			put := uint32(0)
			// at once tells whether a bell reached the card while nobody but the trap could do it.
			atOnce := func() (gathers uint64, rang bool) {
				letGo := held(t, g)
				defer settle(g)
				defer letGo()
				put++
				store(g, 1, put)
				before := g.stats.Mapped.Gathers.Load()
				g.Doorbell(1)
				return g.stats.Mapped.Gathers.Load() - before, told(put)
			}
			if replicas <= homes.AtOnce/pageSize {
				require.Eventually(t, func() bool { // not while they are being freshened
					gathers, rang := atOnce()
					return gathers == 1 && rang
				}, patience, tick)
				return
			}
			for range 20 {
				gathers, rang := atOnce()
				require.Zero(t, gathers)
				require.False(t, rang)
				require.True(t, told(put), "its goroutine has been let go")
			}
		})
	}
}
