package windows

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestMovesAreBounded: if a guest permutes all pages of a BAR at each invalidate, no trap
// moves more pages than the limit, and the invalidate completes only when all pages have
// moved.
func TestMovesAreBounded(t *testing.T) {
	const n, limit = 200, 16
	each(t, offer{Map: aperture.MapAll, Limits: aperture.Limits{Moves: limit}}, func(t *testing.T, s *side) {
		s.patient = true
		d := drive(t, s)
		text := func(i int) []byte { return fmt.Appendf(nil, "page %4d", i) }
		for i := range n {
			d.poke(dataAt+uint64(i)*page, text(i))
		}
		d.away()
		for round := range 4 {
			show := func(at int) int { return (at*7 + round*31) % n }
			for at := range n {
				d.enter(d.bar3, uint64(at), shadowpt.PTE{Valid: true, Addr: dataAt + uint64(show(at))*page})
			}
			d.away()
			d.barrier()
			d.name(d.bar3)
			s.patient = false
			deferred := s.stats.Deferred.Load()
			last := s.stats.PagesMoved.Load()
			step := func() { // a page leaves one slot and enters another, before the access and in it
				now := s.stats.PagesMoved.Load()
				require.LessOrEqual(t, now-last, uint64(4*limit))
				last = now
			}
			d.invalidate(false)
			step()
			for range round { // while pages of the last one wait
				before := s.stats.PagesMoved.Load()
				d.invalidate(false)
				step()
				require.Greater(t, s.stats.PagesMoved.Load(), before)
			}
			require.GreaterOrEqual(t, s.stats.Deferred.Load(), deferred+1)
			waits := 0
			for begin := time.Now(); !s.shown(); waits++ {
				step()
				require.Less(t, time.Since(begin), patience, "the invalidate does not end")
			}
			step()
			s.patient = true
			for at := range n {
				require.Equal(t, text(show(at)), d.read(3, uint64(at)*page, 9))
			}
		}
		require.Zero(t, s.stats.MovesRefused.Load())
	})
}

// TestWindowMovesImmediately: a driver does not wait after it has moved PRAMIN, so its next
// store must reach the new page, for any limit on moves and any other pending moves.
func TestWindowMovesImmediately(t *testing.T) {
	const n, limit = 200, 16
	each(t, offer{Map: aperture.MapAll, Limits: aperture.Limits{Moves: limit}}, func(t *testing.T, s *side) {
		s.patient = true
		d := drive(t, s)
		d.enterAll(d.bar3, 0, dataAt, n, true)
		d.away()
		d.barrier()
		d.name(d.bar3)
		s.patient = false
		d.invalidate(false) // leaves most of them
		const far, near = dataAt + 0x800000, dataAt + 0x840000
		for i := range uint64(20) {
			at := far + i*0x10000 // windows that lie over each other
			d.poke(at+i*page, fmt.Appendf(nil, "store %4d", i))
			s.wr(s.window, near>>16)
			s.wr(s.window, uint32((far+i*0x10000)>>16))
			require.Equal(t, fmt.Sprintf("store %4d", i), string(d.peek(at+i*page, 10)))
		}
		for i := range uint64(20) {
			require.Equal(t, fmt.Sprintf("store %4d", i), string(d.peek(far+i*0x10000+i*page, 10)))
		}
		require.Zero(t, s.stats.MovesRefused.Load())
	})
}

// TestFlushWaitsForABAR: a driver of a GF100 that has switched a BAR on waits with a flush, as there
// is no other signal, and one of a GH100 for GSP's reply. When it is done, its stores reach the pages.
func TestFlushWaitsForABAR(t *testing.T) {
	const n, limit, busy = 200, 16, 2
	each(t, offer{Map: aperture.MapAll, Limits: aperture.Limits{Moves: limit}}, func(t *testing.T, s *side) {
		s.patient = true
		d := drive(t, s)
		d.enterAll(d.bar3, 0, dataAt, n, true)
		d.away()
		d.turn(d.bar3, false)
		s.patient = false
		d.turn(d.bar3, true)
		if s.format == shadowpt.Fermi {
			d.barrier()
		}
		looks := 0
		for begin := time.Now(); s.format == shadowpt.Fermi && s.rd(regFlush)&busy != 0; looks++ {
			require.Less(t, time.Since(begin), patience, "the flush does not end")
		}
		require.Equal(t, s.format == shadowpt.Fermi, looks > n/limit/2)
		for at := range uint64(n) {
			d.write(3, at*page, fmt.Appendf(nil, "store %4d", at))
		}
		s.patient = true
		d.barrier()
		for at := range uint64(n) {
			require.Equal(t, fmt.Sprintf("store %4d", at), string(d.peek(dataAt+at*page, 10)))
		}
	})
}
