package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Images that were just used stay, and of the others as many as there is room for.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	keep := map[string]bool{}
	for name, c := range map[string]struct {
		size int64
		age  time.Duration
		keep bool
	}{
		"new": {room, 0, true}, "used": {room, minAge / 2, true}, "large": {1, 2 * minAge, false}, "old": {1, maxAge + time.Minute, false},
	} {
		p := filepath.Join(dir, name+".cpio")
		require.NoError(t, os.WriteFile(p, nil, 0o600))
		require.NoError(t, os.Truncate(p, c.size))
		require.NoError(t, os.Chtimes(p, time.Time{}, time.Now().Add(-c.age)))
		keep[p] = c.keep
	}
	require.NoError(t, prune(dir))
	for p, keep := range keep {
		require.Equal(t, keep, exists(p), p)
	}
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}
