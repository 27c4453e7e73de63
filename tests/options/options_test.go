package options

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/program"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFew: Few has every pair of values that All has.
func TestFew(t *testing.T) {
	pairs := func(list []Combination) map[[2]string]bool {
		out := make(map[[2]string]bool)
		for _, c := range list {
			values := []string{c.Shadow.Sync.String(), c.Shadow.Scan.String(), c.Scheduler}
			for part := aperture.MapBAR1; part <= aperture.MapROM; part <<= 1 {
				values = append(values, fmt.Sprintf("%v: %t", part, c.Map&part != 0))
			}
			for i, a := range values {
				for _, b := range values[:i] {
					out[[2]string{a, b}] = true
				}
			}
		}
		return out
	}
	require.Equal(t, pairs(All()), pairs(Few()))
}

// TestPrograms: with all options, random programs (maps, unmaps, aliases, copies, faults,
// stores, and moves under work) leave the memory, the fences and the faults that their
// model predicts.
func TestPrograms(t *testing.T) {
	each(t, slices.Concat([]Combination{Oracle}, scale.Of(Few(), All())), func(t *testing.T, i int, c Combination) {
		runPrograms(t, c, testserver.SharedConfig{}, scale.Of(0, 3*i), 3)
	})
}

func each(t *testing.T, all []Combination, test func(t *testing.T, i int, c Combination)) {
	scale.Each(t, len(all), func(i int) string { return all[i].String() }, func(t *testing.T, i int) { test(t, i, all[i]) })
}

// runPrograms runs n random programs from a seed on. They have no large buffers, and rings
// in RAM: writing and clearing by trapped accesses takes long.
func runPrograms(t *testing.T, c Combination, cfg testserver.SharedConfig, seed, n int) {
	var err error
	cfg.Limits, err = c.Limits()
	require.NoError(t, err)
	r := rig.New(t, cfg)
	gpu, err := c.GPU("a", rig.VRAM)
	require.NoError(t, err)
	g := r.Attach(r.AddWith(gpu), guest.Config{RAM: 1 << 20, Map: c.Maps()})
	gen := program.Gen(program.Limits{NoLarge: true, Buffers: 3, Ops: 25})
	for i := range n {
		p := gen.Example(seed + i)
		for k := range p.Channels {
			p.Channels[k].ChannelConfig = guest.ChannelConfig{RingLog2: p.Channels[k].RingLog2, Push: 4096, RingRAM: true, PushRAM: true}
		}
		require.NoError(t, errors.Join(g.Reset(), program.Run(g.Guest, &p)), "%v", p)
	}
	require.Equal(t, c.Windows(), g.GPU.Stats().Windows.Mapped.PagesMoved.Load() > 0)
}

// TestFaultsStay: with all options, on both chips, a channel that faults is stopped and says where. Another
// of the same space copies on.
func TestFaultsStay(t *testing.T) {
	for _, chip := range rig.Chips {
		t.Run(chip.Device.Name(), func(t *testing.T) {
			each(t, scale.Of(Few(), All()), func(t *testing.T, _ int, c Combination) {
				limits, err := c.Limits()
				require.NoError(t, err)
				gpu, err := c.GPU("a", chip.VRAM)
				require.NoError(t, err)
				gpu.Device = chip.Device
				r := rig.New(t, testserver.SharedConfig{Card: soft.Config{VRAM: 5 << 30}, Limits: limits})
				v, err := rig.NewCopier(chip, r.AddWith(gpu).Socket, guest.Config{RAM: 2 << 20, Map: c.Maps()}, 1)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, v.Close()) })
				bad, err := v.Open(7)
				require.NoError(t, err)
				require.NoError(t, errors.Join(v.Copy(), bad.Copy(0x123_4000, v.Src, 4096)))
				require.ErrorContains(t, bad.Finish(), "VA 0x1234000")
				v.Events() // of the fault
				for range 3 {
					require.NoError(t, v.Copy())
				}
				require.NoError(t, bad.Close())
			})
		})
	}
}

// TestOtherCards is TestPrograms with the least that cards may have. Programs 62 and 88 notice
// if the card keeps translations over an invalidate.
func TestOtherCards(t *testing.T) {
	for name, cfg := range testserver.OtherCards {
		t.Run(name, func(t *testing.T) {
			each(t, scale.Of(Bare()[3:], Bare()), func(t *testing.T, i int, c Combination) {
				runPrograms(t, c, cfg, scale.Of(60, 20*i), scale.Of(3, 20))
			})
		})
	}
}
