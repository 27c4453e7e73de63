package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
)

// relocations is a card that records moves of pages, and makes none.
type relocations struct{ list []card.Relocation }

func (c *relocations) MaxMappings() int { return 0 }
func (c *relocations) Relocate(r card.Relocation) (uint64, error) {
	c.list = append(c.list, r)
	return r.Size, nil
}

// TestMovesEndWithExtents: pages that are adjacent for the guest only are moved separately, and
// each to its own place in the file.
func TestMovesEndWithExtents(t *testing.T) {
	const k = 1 << 10
	m := New(nil, vram.NewExtents([]card.Run{{Addr: 512 * k, Size: 256 * k}, {Addr: 128 * k, Size: 128 * k}, {Addr: 1024 * k, Size: 256 * k}}), nil, nil)
	var cards relocations
	done, err := m.Relocate(&cards, card.Relocation{Addr: 4 * k, Size: 632 * k, Off: 8 * k})
	require.NoError(t, err)
	require.Equal(t, uint64(632*k), done)
	require.Equal(t, []card.Relocation{
		{Addr: 516 * k, Size: 252 * k, Off: 8 * k},
		{Addr: 128 * k, Size: 128 * k, Off: 260 * k},
		{Addr: 1024 * k, Size: 252 * k, Off: 388 * k},
	}, cards.list)
}
