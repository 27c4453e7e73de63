package rm

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// TestMovedPages: who reads a page beside its moves finds its bytes, in the card's part of VRAM and in the host's. A move that fails
// leaves them where they were.
func TestMovedPages(t *testing.T) {
	g := newRig(t, Config{}).join(0)
	window, _, err := memfd("window", page)
	require.NoError(t, err)
	defer window.Close()
	closed, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", window.Fd())) // for reading only
	require.NoError(t, err)
	defer closed.Close()
	for _, at := range []uint64{g.base() + 8<<20, g.base() + vramSize - page} {
		word := []byte{1, 2, 3, byte(at >> 20)}
		require.True(t, g.gpu.WriteVRAM(at, word))
		move := func(to *os.File) error {
			_, err := g.gpu.Relocator().Relocate(card.Relocation{Addr: at, Size: page, To: to})
			return err
		}
		stop := make(chan struct{})
		var reading sync.WaitGroup
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					got := make([]byte, len(word))
					assert.True(t, g.gpu.ReadVRAM(at, got))
					assert.Equal(t, word, got)
				}
			}
		})
		for range 300 {
			require.NoError(t, move(window))
			require.NoError(t, move(nil))
		}
		require.Error(t, move(closed))
		close(stop)
		reading.Wait()
		require.True(t, g.gpu.SameVRAM(at, word))
	}
}
