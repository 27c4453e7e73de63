package shadowpt_test

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// live is a guest that writes its VRAM while it is scanned, entry by entry.
type live struct {
	*plain
	words []atomic.Uint64
}

func (l *live) ReadTable(_ shadowpt.Target, addr uint64, b []byte) bool {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], l.words[(addr+uint64(i))/8].Load())
	}
	return true
}

func (l *live) SameTable(t shadowpt.Target, addr uint64, b []byte) bool {
	for i := 0; i < len(b); i += 8 {
		if l.words[(addr+uint64(i))/8].Load() != binary.LittleEndian.Uint64(b[i:]) {
			return false
		}
	}
	return true
}

func (l *live) SameTables(parts []shadowpt.Part) { sameEach(l, parts) }

// TestNoStoreLostDuringScan: an entry that is written and reported during a Tracker's scan is
// seen by that scan or by the next one. In a round each line is written once, and the lines of
// a page in order, so that no later write hides a missed one. The test detects a scan that
// clears the marks after it has compared.
func TestNoStoreLostDuringScan(t *testing.T) {
	const pages = shadowpt.SmallTableSize / shadowpt.SmallPage
	l := &live{plain: newPlain(plainTables+shadowpt.SmallTableSize, 1)}
	l.words = make([]atomic.Uint64, len(l.vram)/8)
	l.words[0].Store(shadowpt.PDE{Small: small(plainTables)}.Encode())
	work := shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62)
	tr := shadowpt.NewTracker(l, work, uint64(len(l.vram)), 1<<40)
	s := shadowpt.NewShadow(l, l, work, shadowpt.Space{Limit: shadowpt.VASize - 1})
	tr.Follow(s)
	tr.Release()

	looks := 0
	var at []uint64
	for round := range scale.Of(200, 2000) {
		at = at[:0]
		for page := range uint64(pages) {
			for line := uint64(round % 8); line < 64; line += 8 {
				at = append(at, plainTables+page*shadowpt.SmallPage+line*shadowpt.LineSize)
			}
		}
		q := shadowpt.PTE{Valid: true, ReadOnly: true, Addr: uint64(1+round%60) << 12}.Encode()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, addr := range at {
				l.words[addr/8].Store(q)
				tr.Wrote(addr, 8)
			}
		}()
		for written := false; !written; {
			select {
			case <-done:
				written = true
			default:
			}
			tr.UpdateAll() // also once after the last store
			tr.Release()
			looks++
		}
		for _, addr := range at {
			got := l.card[(addr-plainTables)/8]
			require.Equal(t, uint64(1<<36+(1+round%60)<<12), got, "round %d: entry at %#x", round, addr)
		}
	}
	require.Greater(t, looks, scale.Of(200, 2000), "no scan ran during the stores")
}
