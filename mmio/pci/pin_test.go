package pci

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/mmio"
)

// TestPinReportsChanges: a state that the host knows is not reported again.
func TestPinReportsChanges(t *testing.T) {
	c := newConfig(t, Options{})
	var p Pin
	_, changed := p.Settle(c, false, false)
	require.False(t, changed)
	l, changed := p.Settle(c, true, true)
	require.True(t, changed)
	require.Equal(t, mmio.Line{Level: true, Edge: true}, l)
	_, changed = p.Settle(c, true, false)
	require.False(t, changed)
	p.Forget()
	l, changed = p.Settle(c, true, false)
	require.True(t, changed)
	require.Equal(t, mmio.Line{Level: true}, l)
	c.Write(4, []byte{0, 4}) // interrupt disable
	l, changed = p.Settle(c, true, false)
	require.True(t, changed)
	require.True(t, l.Disabled)
	l, changed = p.Settle(c, false, false)
	require.True(t, changed)
	require.Equal(t, mmio.Line{Disabled: true}, l)
}
