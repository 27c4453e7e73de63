package options

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// careless is a card on which a byte of each page is lost when pages move.
type careless struct{ *soft.Card }

func (c careless) Home(m card.Move) (uint64, error) {
	n, err := c.Card.Home(m)
	for at := m.Addr + 5; at < m.Addr+n && !m.Adopt; at += shadowpt.SmallPage {
		var b [1]byte
		c.ReadVRAM(at, b[:])
		c.WriteVRAM(at, []byte{b[0] + 1})
	}
	return n, err
}

// stale is a card on which tables stay as they were once what was mapped goes.
type stale struct {
	*soft.Card
	kept atomic.Uint64
}

func (s *stale) WriteVRAM(addr uint64, p []byte) bool {
	old := make([]byte, len(p))
	if len(p)%8 != 0 || !s.ReadVRAM(addr, old) {
		return s.Card.WriteVRAM(addr, p)
	}
	out := append([]byte(nil), p...)
	for i := 0; i < len(p); i += 8 {
		if e := binary.LittleEndian.Uint64(old[i:]); binary.LittleEndian.Uint64(p[i:]) == 0 && e&1 != 0 && e>>36 == 0 {
			copy(out[i:i+8], old[i:])
			s.kept.Add(1)
		}
	}
	return s.Card.WriteVRAM(addr, out)
}

// TestDataFindsHoles plants holes: the data suite has to find each, with every
// combination where there is something to find.
func TestDataFindsHoles(t *testing.T) {
	for _, h := range []struct {
		what  string
		cfg   soft.Config
		plant func(*soft.Card) card.Card
		where func(Combination) bool
	}{
		{"engines that do nothing", soft.Config{DisableEngines: true}, nil, func(Combination) bool { return true }},
		{"entries that stay", soft.Config{}, func(c *soft.Card) card.Card { return &stale{Card: c} }, func(Combination) bool { return true }},
		{"moves that lose a byte", soft.Config{}, func(c *soft.Card) card.Card { return careless{c} }, func(c Combination) bool {
			return c.maps()&^homes.MapROM != 0 // else nothing moves but doorbells, which need no such byte
		}},
	} {
		var found atomic.Int64
		t.Cleanup(func() { t.Logf("%s: found with %d combinations", h.what, found.Load()) })
		for i, c := range Pairs() {
			if i%min(share, 5) != 0 || !h.where(c) {
				continue
			}
			t.Run(h.what+", "+c.String(), func(t *testing.T) {
				t.Parallel()
				s, g, _, err := begin(c, h.cfg, h.plant)
				if err == nil {
					err = data(g)
				}
				require.Error(t, err)
				if g != nil {
					_ = g.Close()
				}
				_ = s.Close()
				found.Add(1)
			})
		}
	}
}

// TestProgramsFindHoles: random programs find moves that lose a byte, too.
func TestProgramsFindHoles(t *testing.T) {
	c, err := Find("lazy incremental bar1+bar3+pramin+rom poll off")
	require.NoError(t, err)
	s, g, _, err := begin(c, soft.Config{}, func(c *soft.Card) card.Card { return careless{c} })
	if err == nil {
		err = programs(g, 1, 30)
	}
	require.Error(t, err)
	if g != nil {
		_ = g.Close()
	}
	_ = s.Close()
}
