package conformance

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// TestCases: each case has a name of its own, a mark, and says what it does; and the README counts
// them right.
func TestCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range conformance.Cases() {
		at := c.Family + "/" + c.Name
		require.False(t, seen[at], "two cases are called %s", at)
		seen[at] = true
		require.NotEmpty(t, c.Does, at)
		require.Contains(t, []conformance.Mark{conformance.Specification, conformance.Choice}, c.Mark, at)
	}
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), fmt.Sprintf("# %d wire-level cases;", len(seen)))
}

// TestLacksAreDocumented: the page on the C library lists what umbra serve says that it lacks.
func TestLacksAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/libvfio-user.md")
	require.NoError(t, err)
	for _, l := range libvfiouser.Lacks() {
		require.Contains(t, string(page), "\n- "+l+"\n")
	}
}
