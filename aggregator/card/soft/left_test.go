package soft

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// TestUnclosableWindows: while pages of a client's windows cannot be moved back to the
// card, the next client gets no windows.
func TestUnclosableWindows(t *testing.T) {
	c, err := New(Config{VRAM: 64 << 20, Map: aperture.MapPRAMIN})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.OpenWindows())
	w := c.Windows()[0]
	mem, err := unix.Mmap(int(w.File.Fd()), int64(w.Areas[0].Offset), pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	mem[0] = 7

	own := c.vram.file
	closed, err := os.Create(filepath.Join(t.TempDir(), "closed"))
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	c.vram.file = closed // no page can be written there
	for range 2 {
		require.ErrorContains(t, c.CloseWindows(), "still where the last client had them")
		require.ErrorIs(t, c.OpenWindows(), errLeft)
		require.Empty(t, c.Windows())
	}
	c.vram.file = own
	require.NoError(t, c.CloseWindows())
	require.NoError(t, c.OpenWindows())
	mem[0] = 9
	var b [1]byte
	require.True(t, c.ReadVRAM(0, b[:]))
	require.NotEqual(t, mem[0], b[0], "the client before writes the next one's memory")
	require.NoError(t, c.CloseWindows())
}
