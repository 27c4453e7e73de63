package aperture

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInexactSaysWhy: each counter of inexact slots has a reason of its own and a consequence
// for the guest; no other counter has one. The counter that every client raises when it
// attaches is marked, so that it is not reported.
func TestInexactSaysWhy(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range new(Stats).Counts() {
		inexact := strings.HasPrefix(c.Name, "map_inexact_")
		require.Equal(t, inexact, c.Why != "", c.Name)
		require.Equal(t, inexact, c.Then != "", c.Name)
		require.False(t, inexact && seen[c.Why], c.Name)
		seen[c.Why] = true
		require.Equal(t, c.Name == "map_inexact_physical", c.Usual, c.Name)
	}
}
