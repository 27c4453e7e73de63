package homes

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// limited is a set with windows of every kind, of which whatever is shown has to stay within
// its limits.
type limited struct {
	*Set
	t     *rapid.T
	card  *fakeCard
	words map[uint32]uint32 // by page: what it begins with
	// Pages to which a processor has stored since all places were made equal: the card finds that,
	// and the other places need not show it yet.
	stored map[uint32]bool
}

const (
	limitedPages  = 64 // of VRAM
	limitedWindow = 32 // pages of BAR1, and of BAR3
	limitedPoll   = 8  // pages of BAR1 that have the doorbells
)

func newLimited(t *rapid.T) *limited {
	cfg := Config{
		Map: MapBAR1 | MapBAR3 | MapPRAMIN, BAR0: 16 << 20, BAR1: limitedWindow << pageShift, BAR3: limitedWindow << pageShift,
		VRAM: limitedPages << pageShift, Poll: limitedPoll << pageShift, Doorbells: rapid.Bool().Draw(t, "poll"),
		Limits: Limits{
			Runs: rapid.IntRange(1, 9).Draw(t, "runs"), Moves: rapid.IntRange(1, 40).Draw(t, "moves"),
			Replicas: rapid.SampledFrom([]int{1, 3, 8, 64}).Draw(t, "replicas"),
			Pages:    rapid.SampledFrom([]int{1, 5, 20, 64}).Draw(t, "pages"),
		},
	}
	l := &limited{t: t, words: make(map[uint32]uint32), stored: make(map[uint32]bool)}
	l.Set, l.card, _ = newNumberedSet(t, cfg)
	for page := range uint32(limitedPages) {
		l.words[page] = page + 1
	}
	return l
}

// places lists those that a client has mapped.
func (l *limited) places() (list []place) {
	for at := range l.plan.base[Kinds] {
		if k, n := l.plan.kind(at); k != BAR1 || n >= limitedPoll {
			list = append(list, at)
		}
	}
	return list
}

// trap is one, and holds what it has done against the limits. Who fails gives Set.mu back.
func (l *limited) trap(do func()) {
	l.stats.MostEntered.Store(0)
	l.stats.MostLeft.Store(0)
	l.Glance()
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	require.LessOrEqual(l.t, l.stats.MostEntered.Load(), int64(l.cfg.Moves))
	require.LessOrEqual(l.t, l.stats.MostLeft.Load(), int64(l.cfg.Moves))
	require.LessOrEqual(l.t, l.stats.Runs.Load(), int64(l.cfg.Runs))
	require.LessOrEqual(l.t, len(l.order), l.cfg.Replicas)
	require.LessOrEqual(l.t, l.living(), int64(l.cfg.Pages))
	require.Equal(l.t, runsOf(l.Set, limitedPages), l.stats.Runs.Load())
	require.EqualValues(l.t, len(l.order), l.stats.Replicas.Load())
	require.Len(l.t, l.replicas, len(l.order))
	for i, r := range l.order {
		require.Equal(l.t, i, r.index)
	}
	for at, r := range l.replicas { // of what the place shows, and not at a home
		if l.plan.state(r.page).touched {
			continue // a later trap's
		}
		page, ok := l.plan.shows[at].page()
		require.True(l.t, ok && page == r.page, "a replica of page %d at %d, which shows %d", r.page, at, page)
		require.NotEqual(l.t, at, l.plan.home(r.page))
		require.Equal(l.t, l.plan.shows[at]&entryReadOnly != 0, r.readOnly)
	}
}

// change has some places show something else.
func (l *limited) change() {
	places := l.places()
	if rapid.Bool().Draw(l.t, "not PRAMIN") { // it has most places
		places = places[:len(places)-praminSize/pageSize]
	}
	at := rapid.IntRange(0, len(places)-1).Draw(l.t, "place")
	n := rapid.SampledFrom([]int{1, 1, 1, 8, 32, 64}).Draw(l.t, "places")
	step := rapid.IntRange(1, 3).Draw(l.t, "step") // every, or every other
	page := rapid.IntRange(-20, limitedPages-1).Draw(l.t, "page")
	readOnly := rapid.IntRange(0, 6).Draw(l.t, "read-only") == 0
	turn := rapid.IntRange(0, 6).Draw(l.t, "turn") == 0 // pages that are read-only are to be written, and the others not
	for i := 0; i < n && at+i < len(places); i += step {
		e := nothing
		if page >= 0 {
			e = shows(uint32(page+i)%limitedPages, readOnly)
		}
		if was := l.plan.shows[places[at+i]]; turn && was != nothing {
			e = was ^ entryReadOnly
		}
		l.plan.show(places[at+i], e)
	}
}

// maybeOrder orders memory, or does not.
func (l *limited) maybeOrder() {
	if rapid.Bool().Draw(l.t, "order") {
		l.reconcile(pageSize)
		clear(l.stored)
	}
}

// look holds what places show against what their pages have. A processor stores to some of
// them, and rings: the card finds it.
func (l *limited) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybeOrder()
	for _, at := range l.places() {
		page, ok := l.plan.shows[at].page()
		word := l.bytes(at)
		if exact := ok && (l.plan.home(page) == at || l.replicas[at] != nil && l.replicas[at].page == page); !exact {
			require.Zero(l.t, binary.LittleEndian.Uint32(word), "place %d, which is of no page", at)
			continue
		}
		if l.stored[page] {
			continue
		}
		require.Equal(l.t, l.words[page], binary.LittleEndian.Uint32(word), "page %d at %d", page, at)
		if l.plan.showing(page, at) && rapid.IntRange(0, 3).Draw(l.t, "store") == 0 {
			l.words[page] += limitedPages
			l.stored[page] = true
			binary.LittleEndian.PutUint32(word, l.words[page])
			l.gather(Unbounded)
			require.LessOrEqual(l.t, len(l.order), l.cfg.Replicas)
			require.Equal(l.t, l.words[page], l.atCard(page), "gathered: page %d", page)
		}
	}
	for page, word := range l.words {
		require.Equal(l.t, word, l.atCard(page), "page %d", page)
	}
}

// atCard is what a page begins with, as the card finds it.
func (l *limited) atCard(page uint32) uint32 {
	var p [4]byte
	l.card.Read(uint64(page)<<pageShift, p[:])
	return binary.LittleEndian.Uint32(p[:])
}

// TestSetsStayWithinTheirLimits: whatever places of all windows show, one after the other,
// pages lie in no more runs than the limit, and no more of them than theirs, and they are shown
// at no more other places than theirs; one trap moves no more than its limit in and as many
// out. Every page has its bytes: what a processor stored at any place that shows it the card
// finds after a gather, and every place has after an order; no other place has anything. Who
// waits comes to an end.
func TestSetsStayWithinTheirLimits(t *testing.T) {
	sets := 0
	var aliases, runs, pages, deferred uint64 // what was refused, and left to later traps
	rapid.Check(t, func(t *rapid.T) {
		l := newLimited(t)
		defer func() { require.NoError(t, l.Close()) }()
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			l.trap(func() {
				l.maybeOrder()
				for range rapid.IntRange(1, 4).Draw(t, "changes") {
					l.change()
				}
				l.apply()
			})
			if rapid.Bool().Draw(t, "more before it is done") {
				continue
			}
			for looks := 0; l.Pending(); looks++ {
				require.Less(t, looks, 40*limitedPages, "it does not end")
				l.trap(func() {})
			}
			l.look()
		}
		require.Zero(t, l.stats.MovesRefused.Load())
		require.Zero(t, l.stats.Lost.Load())
		sets++
		aliases += l.stats.Aliases.Load()
		runs += l.stats.RunsRefused.Load()
		pages += l.stats.PagesRefused.Load()
		deferred += l.stats.Deferred.Load()
	})
	if sets < 50 {
		return // with -short, or near the end of the time that all tests have; one in three meets each
	}
	require.NotZero(t, aliases, "no limit of replicas was met")
	require.NotZero(t, runs, "no limit of runs was met")
	require.NotZero(t, pages, "no limit of pages was met")
	require.NotZero(t, deferred, "no limit of moves was met")
}
