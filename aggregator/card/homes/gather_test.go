package homes

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// showEach has every page shown at two places, one of them read-only now and then.
func showEach(t *rapid.T, s *Set, pages uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for page := range pages {
		s.plan.show(place(page), shows(page, false))
		readOnly := rapid.IntRange(0, 4).Draw(t, "read-only") == 0
		s.plan.show(place(pages+page), shows(page, readOnly))
	}
	s.apply()
}

// TestGatherEqualsOrder: whatever was stored where, the card finds the same after a gather as
// after an order, and everybody does once both have been ordered. A gather compares no more
// than it said it would.
func TestGatherEqualsOrder(t *testing.T) {
	const pages = 32
	gathered := 0 // stores that only a gather brought home
	rapid.Check(t, func(t *rapid.T) {
		a, cardA, stats := newRunsSet(t, pages, Limits{})
		defer func() { require.NoError(t, a.Close()) }()
		b, cardB, _ := newRunsSet(t, pages, Limits{})
		defer func() { require.NoError(t, b.Close()) }()
		seed := rapid.Uint64().Draw(t, "places")
		for _, s := range []*Set{a, b} {
			gen := rapid.Custom(func(t *rapid.T) int { showEach(t, s, pages); return 0 })
			gen.Example(int(seed >> 1))
		}
		require.Equal(t, a.plan.shows, b.plan.shows)
		for _, s := range []*Set{a, b} { // nobody else's turn
			s.mu.Lock()
			defer s.mu.Unlock()
		}
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for n := range rapid.IntRange(0, 20).Draw(t, "stores") {
				at := place(rapid.IntRange(0, 2*pages-1).Draw(t, "place"))
				// Each place has words of its own: who stores to the same at both has to put
				// more between than a doorbell.
				off := rapid.IntRange(0, pageSize/8-1).Draw(t, "word")*8 + int(at/pages)*4
				for _, s := range []*Set{a, b} {
					binary.LittleEndian.PutUint32(s.bytes(at)[off:], uint32(n+1))
				}
			}
			before := memoryOf(cardA, pages)
			said := a.toGather(Unbounded)
			compared, merged := a.gather()
			require.Equal(t, said, compared)
			require.LessOrEqual(t, merged, compared)
			b.reconcile(userd)
			require.True(t, bytes.Equal(memoryOf(cardB, pages), memoryOf(cardA, pages)), "the card finds something else")
			if !bytes.Equal(before, memoryOf(cardA, pages)) {
				gathered++
				require.NotZero(t, merged)
			}
		}
		a.reconcile(userd)
		for at := range a.plan.base[Kinds] {
			require.True(t, bytes.Equal(b.bytes(at), a.bytes(at)), "place %d", at)
		}
		require.Zero(t, stats.Lost.Load())
		require.Zero(t, stats.Overruled.Load())
	})
	require.NotZero(t, gathered, "a gather that does nothing would pass")
}

// memoryOf is what the card's engines see.
func memoryOf(c *fakeCard, pages uint64) []byte {
	all := make([]byte, pages<<pageShift)
	for page := range pages {
		c.page(page<<pageShift, all[page<<pageShift:][:pageSize])
	}
	return all
}

// BenchmarkGather is what a doorbell costs of so many pages that are shown twice and have not
// changed, and an order of the same.
func BenchmarkGather(b *testing.B) {
	s, _, _ := newRunsSet(b, 32, Limits{})
	defer func() { require.NoError(b, s.Close()) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	for page := range uint32(32) {
		s.plan.show(place(page), shows(page, false))
		s.plan.show(place(32+page), shows(page, false))
	}
	s.apply()
	b.Run("gather", func(b *testing.B) {
		for b.Loop() {
			s.gather()
		}
	})
	b.Run("order", func(b *testing.B) {
		for b.Loop() {
			s.reconcile(userd)
		}
	})
}
