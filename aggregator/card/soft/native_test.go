package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
)

// TestForgetPrograms: the process of an owner ends when the last of its memory is unmapped, which it has mapped, too.
func TestForgetPrograms(t *testing.T) {
	c, err := New(Config{VRAM: MinVRAM, Compile: &jit.Config{Program: "/nowhere/umbra-jit"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for i := range uint64(2) {
		require.NoError(t, c.MapDMA(i<<20, card.Mapping{Mem: make([]byte, 4096), Owner: 3}))
	}
	mine, other := c.compiler.Of(3), c.compiler.Of(4)
	c.UnmapDMA(0, 4096)
	require.Same(t, mine, c.compiler.Of(3))
	c.UnmapDMA(1<<20, 4096)
	require.NotSame(t, mine, c.compiler.Of(3))
	require.Same(t, other, c.compiler.Of(4))
}
