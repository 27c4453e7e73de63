package isolation

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestResetsAllocateLittle: a guest that resets its GPU again and again makes the server collect no
// garbage worth mentioning, which would cost its neighbours time.
func TestResetsAllocateLittle(t *testing.T) {
	s := street(t, testserver.SharedConfig{}, 1)
	v, err := newCopier(s.GPUs[0].Socket)
	require.NoError(t, err)
	defer v.g.Close()
	const n = 10
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	for range n {
		require.NoError(t, v.g.Reset())
	}
	require.Less(t, (allocated()-before)/n, uint64(1<<20), "bytes for each reset")
}
