package serve

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file is where its link leads: the sandbox judges that folder.
func TestPermittedLinks(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	s := &Server{Confined: []string{in}}
	for _, dir := range []string{in, out} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "rom"), nil, 0o600))
	}
	require.NoError(t, os.Symlink(filepath.Join(out, "rom"), filepath.Join(in, "link")))
	require.NoError(t, os.Symlink(filepath.Join(in, "rom"), filepath.Join(out, "link")))
	require.NoError(t, s.permitted("rom", filepath.Join(in, "rom")))
	require.NoError(t, s.permitted("rom", filepath.Join(out, "link")))
	require.NoError(t, s.permitted("socket", filepath.Join(in, "new")))
	for _, name := range []string{filepath.Join(out, "rom"), filepath.Join(in, "link"), filepath.Join(out, "new")} {
		require.ErrorContains(t, s.permitted("rom", name), "keeps it out of folder "+out, name)
	}
}
