package program_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/program"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func attach(t *testing.T, cfg guest.Config) *guest.Guest {
	t.Helper()
	s, err := testserver.New(testserver.Config{Card: soft.Config{VRAM: 64 << 20}, Windows: passthrough.Config{Map: aperture.MapAll}})
	require.NoError(t, err)
	g, err := guest.Attach(context.Background(), s.Socket(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.Close())
		require.NoError(t, s.Close())
	})
	return g
}

// Any program leaves memory as the model says.
func TestProgramsMatchModel(t *testing.T) {
	g := attach(t, guest.Config{})
	rapid.Check(t, func(t *rapid.T) {
		p := program.Gen(program.Limits{}).Draw(t, "program")
		require.NoError(t, g.Reset())
		require.NoError(t, program.Run(g, &p), "%v", p)
	})
}

// However the device is reached: some programs, the same every time. Those ways
// where each access costs a round trip do without large buffers.
func TestProgramsMatchModelEveryWay(t *testing.T) {
	slow := program.Limits{NoLarge: true, Buffers: 3}
	for name, way := range map[string]struct {
		cfg    guest.Config
		limits program.Limits
		n      int
	}{
		"multi, INTx":    {guest.Config{Access: guest.Multi, Interrupts: guest.INTx}, program.Limits{}, 10},
		"narrow":         {guest.Config{Width: 4, RAMBase: 1 << 32, RAMPiece: 1 << 20}, program.Limits{}, 10},
		"replied, none":  {guest.Config{Access: guest.Replied, Interrupts: guest.None}, slow, 8},
		"mapped":         {guest.Config{Map: true}, program.Limits{}, 25},
		"through PRAMIN": {guest.Config{PRAMIN: true}, slow, 8},
	} {
		t.Run(name, func(t *testing.T) {
			g := attach(t, way.cfg)
			gen := program.Gen(way.limits)
			for i := range way.n {
				p := gen.Example(i)
				require.NoError(t, g.Reset())
				require.NoError(t, program.Run(g, &p), "%v", p)
			}
		})
	}
}
