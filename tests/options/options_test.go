package options

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/program"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPairs: Pairs has every pair that All has, in few combinations.
func TestPairs(t *testing.T) {
	few, all := Pairs(), All()
	require.Len(t, all, len(shadowpt.Policies())*16*7)
	require.Equal(t, pairs(all), pairs(few))
	require.Subset(t, all, few)
	require.LessOrEqual(t, len(few), len(all)/20)
	c, err := Find(all[77].String())
	require.NoError(t, err)
	require.Equal(t, all[77], c)
}

// fixture is a card with one GPU and its guest.
type fixture struct {
	*testserver.Shared
	g        *guest.Guest
	endpoint *testserver.Endpoint
}

const gpuVRAM = 64 << 20

func newFixture(c Combination, cfg testserver.SharedConfig, timeout time.Duration) (b fixture, err error) {
	if cfg.Limits, err = c.Limits(); err != nil {
		return b, err
	}
	cfg.Card.VRAM = 2 * gpuVRAM
	if b.Shared, err = testserver.NewSharedWith(cfg); err != nil {
		return b, err
	}
	gpu, err := c.GPU("a", gpuVRAM)
	if err == nil {
		b.endpoint, err = b.Add(gpu)
	}
	if err == nil {
		b.g, err = guest.Attach(context.Background(), b.endpoint.Socket, guest.Config{RAM: 1 << 20, Map: c.Maps(), Timeout: timeout})
	}
	if err != nil {
		return b, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *fixture) end() error { return errors.Join(b.g.Close(), b.Close()) }

// run runs n random programs from a seed on. They have no large buffers, and rings
// in RAM: writing and clearing by trapped accesses takes long.
func (b *fixture) run(seed, n int) error {
	gen := program.Gen(program.Limits{NoLarge: true, Buffers: 3, Ops: 25})
	for i := range n {
		p := gen.Example(seed + i)
		for k := range p.Channels {
			p.Channels[k].ChannelConfig = guest.ChannelConfig{RingLog2: p.Channels[k].RingLog2, Push: 4096, RingRAM: true, PushRAM: true}
		}
		if err := errors.Join(b.g.Reset(), program.Run(b.g, &p)); err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	return nil
}

// TestPrograms: with all options, random programs (maps, unmaps, aliases, copies, faults,
// stores, and moves under work) leave the memory, the fences and the faults that their
// model predicts.
func TestPrograms(t *testing.T) {
	for i, c := range slices.Concat([]Combination{Oracle}, scale.Of(Pairs(), All())) {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			runPrograms(t, c, testserver.SharedConfig{}, scale.Of(0, 8*i), scale.Of(3, 8))
		})
	}
}

// runPrograms runs n programs from a seed on.
func runPrograms(t *testing.T, c Combination, cfg testserver.SharedConfig, seed, n int) {
	b, err := newFixture(c, cfg, time.Minute)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.end()) }()
	require.NoError(t, b.run(seed, n))
	stats := b.endpoint.Guest.Stats()
	require.Equal(t, c.Windows(), stats.Windows.Mapped.PagesMoved.Load() > 0)
}

// TestOtherCards is TestPrograms with the least that cards may have. Programs 62 and 88 notice
// if the card keeps translations over an invalidate.
func TestOtherCards(t *testing.T) {
	for name, cfg := range testserver.OtherCards {
		for i, c := range scale.Of(Bare()[3:], Bare()) {
			t.Run(name+", "+c.String(), func(t *testing.T) {
				t.Parallel()
				runPrograms(t, c, cfg, scale.Of(60, 20*i), scale.Of(3, 20))
			})
		}
	}
}

// stale is a card on which table entries stay when they are cleared.
type stale struct{ *soft.Card }

func (s stale) WriteVRAM(addr uint64, p []byte) bool {
	old, out := make([]byte, len(p)), slices.Clone(p)
	if len(p)%8 != 0 || !s.ReadVRAM(addr, old) {
		return s.Card.WriteVRAM(addr, p)
	}
	for i := 0; i < len(p); i += 8 {
		if e := binary.LittleEndian.Uint64(old[i:]); binary.LittleEndian.Uint64(p[i:]) == 0 && e&1 != 0 && e>>36 == 0 {
			copy(out[i:i+8], old[i:])
		}
	}
	return s.Card.WriteVRAM(addr, out)
}

// TestProgramsFindFaults plants faults in the card: programs have to find each.
func TestProgramsFindFaults(t *testing.T) {
	for _, f := range []struct {
		what string
		cfg  testserver.SharedConfig
	}{
		{"engines that do nothing", testserver.SharedConfig{Card: soft.Config{DisableEngines: true}}},
		{"a direct card's engines that do nothing", testserver.SharedConfig{Direct: true, Card: soft.Config{DisableEngines: true}}},
		{"entries that stay", testserver.SharedConfig{Plant: func(c *soft.Card) card.Registers { return stale{c} }}},
	} {
		list := Pairs()[:scale.Of(3, len(Pairs()))]
		if f.cfg.Direct {
			list = scale.Of(Bare()[:1], Bare())
		}
		for _, c := range list {
			t.Run(f.what+", "+c.String(), func(t *testing.T) {
				t.Parallel()
				b, err := newFixture(c, f.cfg, time.Second) // work that a fault stopped does not continue
				if err != nil && !f.cfg.Direct {
					return // the driver found it
				}
				require.NoError(t, err)
				require.Error(t, b.run(1, 30))
				_ = b.end()
			})
		}
	}
}
