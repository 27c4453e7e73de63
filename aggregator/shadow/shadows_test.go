package shadow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRemapped: what was remapped becomes one span, and a range that the card cannot reach is no
// part of it.
func TestRemapped(t *testing.T) {
	var sh Shadows
	sh.Remapped(1<<40, 0, true)
	require.Zero(t, sh.state.Remapped)
	sh.Remapped(0x3000, 0x1000, false)
	sh.Remapped(0x8000, 0x2000, true)
	sh.Remapped(1<<40, 0, false)
	require.Equal(t, Span{From: 0x3000, To: 0xa000, Lost: true}, sh.state.Remapped)
}
