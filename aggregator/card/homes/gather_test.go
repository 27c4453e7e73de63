package homes

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/homes/homestest"
)

// gatherPages is how many pages there are, each of which is shown at three places: in BAR3, where
// it lives, or in the poll area, and twice in BAR1.
const gatherPages = 10

// gatherSet shows them; twice in BAR1 read-only, where that is said.
func gatherSet(t require.TestingT, poll bool, readOnly []bool) (*Set, *fakeCard, *Stats) {
	const window = 32 << pageShift
	c, stats := &fakeCard{homestest.New(gatherPages << pageShift)}, new(Stats)
	s, err := New(Config{
		Map: MapBAR1 | MapBAR3, BAR1: 2 * window, BAR3: window, Poll: window, Doorbells: poll, VRAM: gatherPages << pageShift,
	}, c, stats)
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	strongest := s.plan.base[BAR3]
	if poll {
		strongest = s.plan.base[PollArea]
	}
	for page := range uint32(gatherPages) {
		s.plan.show(strongest+place(page), shows(page, false))
		s.plan.show(s.plan.base[BAR1]+place(page), shows(page, readOnly[page]))
		s.plan.show(s.plan.base[BAR1]+gatherPages+place(page), shows(page, false))
	}
	s.apply()
	require.EqualValues(t, 2*gatherPages, stats.Replicas.Load())
	return s, c, stats
}

// shown lists the places that show something.
func shown(s *Set) (list []place) {
	for at := range s.plan.base[Kinds] {
		if _, ok := s.plan.shows[at].page(); ok {
			list = append(list, at)
		}
	}
	return list
}

// TestGatherEqualsOrder: whatever was stored where, the card finds the same after a gather as
// after an order, and everybody does once both have been ordered. A gather compares what it
// said it would.
func TestGatherEqualsOrder(t *testing.T) {
	draws, gathered := 0, 0 // and rounds in which something came home
	rapid.Check(t, func(t *rapid.T) {
		draws++
		poll := rapid.Bool().Draw(t, "poll area")
		readOnly := rapid.SliceOfN(rapid.Bool(), gatherPages, gatherPages).Draw(t, "read-only")
		a, cardA, stats := gatherSet(t, poll, readOnly)
		defer func() { require.NoError(t, a.Close()) }()
		b, cardB, _ := gatherSet(t, poll, readOnly)
		defer func() { require.NoError(t, b.Close()) }()
		both := []*Set{a, b}
		for _, s := range both { // nobody else's turn
			s.mu.Lock()
			defer s.mu.Unlock()
		}
		words := pageSize / 4
		if poll {
			words = userd / 4 // what else is in such pages follows later
		}
		places := shown(a)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for n := range rapid.IntRange(0, 20).Draw(t, "stores") {
				i := rapid.IntRange(0, len(places)-1).Draw(t, "place")
				// Each place has words of its own: who stores to the same at two has to put
				// more between than a doorbell.
				off := (rapid.IntRange(0, words/4-1).Draw(t, "word")*4 + i/gatherPages) * 4
				for _, s := range both {
					binary.LittleEndian.PutUint32(s.bytes(places[i])[off:], uint32(n+1))
				}
			}
			before := memoryOf(cardA)
			said := a.toGather(Unbounded)
			w := a.gather(Unbounded)
			require.Equal(t, said, w.Compared)
			require.LessOrEqual(t, w.Merged, w.Compared)
			b.reconcile(userd)
			require.True(t, bytes.Equal(memoryOf(cardB), memoryOf(cardA)), "the card finds something else")
			if !bytes.Equal(before, memoryOf(cardA)) {
				gathered++
				require.NotZero(t, w.Merged)
			}
		}
		a.reconcile(userd)
		for _, at := range places {
			require.True(t, bytes.Equal(b.bytes(at), a.bytes(at)), "place %d", at)
		}
		require.Zero(t, stats.Lost.Load())
		require.Zero(t, stats.Overruled.Load())
	})
	if draws >= 20 { // near the end of the time that all tests have there are fewer, which may store nothing
		require.NotZero(t, gathered, "a gather that does nothing would pass")
	}
}

// TestOverruled: what two places say of the same bytes is the home's, and is counted.
func TestOverruled(t *testing.T) {
	s, c, stats := gatherSet(t, false, make([]bool, gatherPages))
	defer func() { require.NoError(t, s.Close()) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	places := shown(s)
	copy(s.bytes(places[0])[8:], "home")
	s.gather(Unbounded) // as at a doorbell
	copy(s.bytes(places[gatherPages])[8:], "away")
	s.gather(Unbounded)
	got := make([]byte, 4)
	c.Read(8, got)
	require.Equal(t, "home", string(got))
	require.EqualValues(t, len("away"), stats.Overruled[BAR1].Load())
	s.reconcile(userd)
	require.Equal(t, "home", string(s.bytes(places[gatherPages])[8:12]))
	require.EqualValues(t, len("away"), stats.Overruled[BAR1].Load())
}

// changes are what a guest may have stored at places before a bell, by how much of it there is.
var changes = []struct {
	name     string
	step     int  // from one changed byte to the next
	readOnly bool // at places that take and never give
}{
	{"every byte", 1, false},
	{"a byte of each word", 4, false},
	{"a byte of each line", line, false},
	{"read-only", 1, true},
}

// storeAt stores to all places of BAR1 that a gatherSet shows first.
func storeAt(s *Set, step int) {
	for _, at := range shown(s)[gatherPages : 2*gatherPages] {
		for i := 0; i < pageSize; i += step {
			s.bytes(at)[i] ^= 0xa5
		}
	}
}

// readOnlySet shows one page, that lives in the card's memory, at n places to be read.
func readOnlySet(t require.TestingT, n int) *Set {
	const window = 64 << pageShift
	s, err := New(Config{Map: MapBAR1, BAR1: window, VRAM: gatherPages << pageShift}, &fakeCard{homestest.New(gatherPages << pageShift)}, new(Stats))
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range place(n) {
		s.plan.show(s.plan.base[BAR1]+i, shows(0, true))
	}
	s.apply()
	require.Len(t, s.order, n)
	return s
}

// TestMergingStops: what has changed is merged at once within bounds, to a page, however it has
// changed; who comes back for the rest finds it.
func TestMergingStops(t *testing.T) {
	const most = pageSize
	addrs := make([]uint64, gatherPages)
	for page := range addrs {
		addrs[page] = uint64(page) << pageShift
	}
	ways := map[string]func(s *Set) Work{
		"gather": func(s *Set) Work { return s.gather(most) },
		"fresh":  func(s *Set) Work { return s.freshPages(most, addrs) },
	}
	for _, c := range changes {
		for name, do := range ways {
			if c.readOnly && name == "gather" {
				continue // there is nothing to bring home
			}
			t.Run(c.name+" "+name, func(t *testing.T) {
				s := readOnlySet(t, 2*gatherPages)
				if !c.readOnly {
					require.NoError(t, s.Close())
					s, _, _ = gatherSet(t, false, make([]bool, gatherPages))
				}
				defer func() { require.NoError(t, s.Close()) }()
				s.mu.Lock()
				defer s.mu.Unlock()
				want := make([]byte, pageSize)
				if c.readOnly {
					for _, at := range shown(s) {
						copy(s.bytes(at), bytes.Repeat([]byte{0xa5}, pageSize))
					}
				} else {
					storeAt(s, c.step)
					copy(want, s.bytes(shown(s)[gatherPages]))
				}
				times, sum := 0, 0
				for more := true; more; times++ {
					require.Less(t, times, 4*gatherPages, "it does not end")
					w := do(s)
					require.LessOrEqual(t, w.merging(), most+4*pageSize, "more than a page, at all its places, beyond")
					more = w.merging() > most
					sum += w.merging()
				}
				require.Greater(t, times, 2, "most of it was done at once")
				require.GreaterOrEqual(t, sum, gatherPages*pageSize/4, "what is done is not told")
				for _, at := range shown(s) {
					if c.readOnly || at < shown(s)[gatherPages] {
						require.True(t, bytes.Equal(want, s.bytes(at)), "place %d", at)
					}
				}
			})
		}
	}
}

// TestFreshIsOfItsReplicas: what is looked at of a page with a doorbell are its replicas, and
// not the places that show it beyond the limit; each page's hang together.
func TestFreshIsOfItsReplicas(t *testing.T) {
	const pages, window = 4, 64 << pageShift
	c, stats := &fakeCard{homestest.New(pages << pageShift)}, new(Stats)
	s, err := New(Config{Map: MapBAR1 | MapBAR3, BAR1: window, BAR3: window, VRAM: pages << pageShift, Limits: Limits{Replicas: 40}}, c, stats)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	rapid.Check(t, func(t *rapid.T) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for range rapid.IntRange(1, 64).Draw(t, "changes") {
			e := nothing
			if page := rapid.Uint32Range(0, pages).Draw(t, "page"); page < pages {
				e = shows(page, rapid.Bool().Draw(t, "read-only"))
			}
			s.plan.show(place(rapid.IntRange(0, 2*64-1).Draw(t, "place")), e)
		}
		s.apply()
		var all []uint64
		for page := range uint32(pages) {
			all = append(all, uint64(page)<<pageShift)
			want := make(map[*replica]bool)
			for _, r := range s.replicas {
				if r.page == page {
					want[r] = true
				}
			}
			n := len(want)
			for r := s.ofPage[page]; r != nil; r = r.after {
				require.True(t, want[r], "twice, or another's")
				delete(want, r)
				require.True(t, r.after == nil || r.after.before == r)
			}
			require.Empty(t, want)
			require.Equal(t, n*pageSize, s.toFreshen(Unbounded, all[page:]))
		}
		require.Equal(t, len(s.replicas)*pageSize, s.freshPages(Unbounded, all).Compared)
		require.Len(t, s.order, len(s.replicas))
	})
	require.NotZero(t, stats.Aliases.Load(), "nothing was shown beyond the limit")
}

// memoryOf is what the card's engines see.
func memoryOf(c *fakeCard) []byte {
	all := make([]byte, len(c.Bytes))
	c.Read(0, all)
	return all
}

// BenchmarkGather is what a doorbell costs of 20 replicas that have not changed, and an order of
// the same.
func BenchmarkGather(b *testing.B) {
	s, _, _ := gatherSet(b, false, make([]bool, gatherPages))
	defer func() { require.NoError(b, s.Close()) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	b.Run("gather", func(b *testing.B) {
		for b.Loop() {
			s.gather(Unbounded)
		}
	})
	b.Run("order", func(b *testing.B) {
		for b.Loop() {
			s.reconcile(userd)
		}
	})
}

// BenchmarkGatherWithin is the longest that others wait for what a guest has stored in 24 pages,
// by how it has, and what of that is the work that its guest pays for, a byte.
func BenchmarkGatherWithin(b *testing.B) {
	const pages, window = AtOnce / pageSize, 64 << pageShift
	for _, c := range changes {
		b.Run(c.name, func(b *testing.B) {
			s := readOnlySet(b, pages)
			addrs := []uint64{0}
			if !c.readOnly {
				require.NoError(b, s.Close())
				var err error
				s, err = New(Config{Map: MapBAR1 | MapBAR3, BAR1: window, BAR3: window, VRAM: pages << pageShift}, &fakeCard{homestest.New(pages << pageShift)}, new(Stats))
				require.NoError(b, err)
				addrs = nil
			}
			defer func() { require.NoError(b, s.Close()) }()
			s.mu.Lock()
			if !c.readOnly {
				for page := range uint32(pages) {
					s.plan.show(s.plan.base[BAR3]+place(page), shows(page, false))
					s.plan.show(s.plan.base[BAR1]+place(page), shows(page, false))
					addrs = append(addrs, uint64(page)<<pageShift)
				}
				s.apply()
			}
			s.mu.Unlock()
			var work Work
			for b.Loop() {
				b.StopTimer()
				s.mu.Lock()
				for _, r := range s.order {
					for i := 0; i < pageSize; i += c.step {
						r.mem[i] ^= 0xa5
					}
				}
				s.mu.Unlock()
				b.StartTimer()
				came, w := s.FreshWithin(AtOnce, addrs)
				for came == Busy {
					came, w = s.FreshWithin(AtOnce, addrs)
				}
				work.Merged += w.Merged
				work.Moved += w.Moved
			}
			b.ReportMetric(float64(work.Merged)/float64(b.N), "merged/op")
			b.ReportMetric(float64(work.Moved)/float64(b.N), "moved/op")
		})
	}
}
