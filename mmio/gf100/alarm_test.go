package gf100

import (
	"github.com/umbra-gpu/umbra/mmio"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPinReportsChanges: a state that the host knows is not reported again.
func TestPinReportsChanges(t *testing.T) {
	b := newBench(t, FaceConfig{})
	c, err := NewConfigSpace(ConfigOptions{})
	require.NoError(t, err)
	b.Write32(0x140, 1)
	var p Pin
	settle := func(fifo bool) (mmio.Line, bool) { return p.Settle(b.face, c, fifo) }
	_, changed := settle(false)
	require.False(t, changed)
	l, changed := settle(true)
	require.True(t, changed)
	require.Equal(t, mmio.Line{Level: true, Edge: true}, l)
	_, changed = settle(true)
	require.False(t, changed)
	p.Forget()
	l, changed = settle(true)
	require.True(t, changed)
	require.Equal(t, mmio.Line{Level: true}, l)
	c.Write(4, []byte{0, 4}) // interrupt disable
	l, changed = settle(true)
	require.True(t, changed)
	require.True(t, l.Disabled)
	l, changed = settle(false)
	require.True(t, changed)
	require.Equal(t, mmio.Line{Disabled: true}, l)
}
