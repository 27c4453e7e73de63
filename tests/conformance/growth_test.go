package conformance

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// footprint is what this process has.
type footprint struct{ descriptors, goroutines, mappings, heap int }

func measure(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	runtime.GC()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{len(fds), runtime.NumGoroutine(), strings.Count(string(maps), "\n"), int(m.HeapAlloc)}
}

// TestGrowth: many clients negotiate, map memory with a descriptor, attach an eventfd, and
// disconnect in the middle of a message or immediately. The server keeps no resources of them, and
// leaves none when it ends.
func TestGrowth(t *testing.T) {
	rounds := scale.Of(500, 10_000)
	eachTransport(t, func(t *testing.T, by maker) {
		dev := newEverything(t)
		mem, err := client.Alloc(1 << 20)
		require.NoError(t, err)
		defer mem.Close()
		irq, err := client.NewEventFD()
		require.NoError(t, err)
		defer irq.Close()
		visit := func(tr vfiouser.Transport, path string, leave bool) {
			c, err := client.Dial(path, nil)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Map(0x1000, mem, 0, 1<<20, client.ReadWrite))
			require.NoError(t, c.SetIRQs(attachFDs, vfiouser.IRQMSIX, 0, 1, nil, irq.FD))
			var stray []int
			if _, ok := tr.(*vfiouser.Server); ok { // the library never closes descriptors of half a header; the suite reports that
				stray = []int{mem.FD}
			}
			if leave {
				require.NoError(t, c.Send([]byte{1, 0, 4, 0, 32, 0, 0}, stray...))
			}
		}
		serve := func(clients, rounds int) {
			t.Run("server", func(t *testing.T) {
				tr, path := serveAt(t, by, dev)
				visits := func(n int) {
					for i := range n {
						visit(tr, path, i%2 == 0)
					}
				}
				visits(clients) // pools and caches fill
				before := measure(t)
				visits(rounds)
				requireNoGrowth(t, before)
				require.GreaterOrEqual(t, tr.Stats().Clients, uint64(clients+rounds))
			})
		}
		serve(100, rounds)
		before := measure(t)
		for i := range 20 {
			serve(i%2, 0)
		}
		requireNoGrowth(t, before)
	})
}

// requireNoGrowth waits until what clients and servers had is released.
func requireNoGrowth(t *testing.T, before footprint) {
	t.Helper()
	var now footprint
	require.Eventually(t, func() bool {
		now = measure(t)
		return now.descriptors <= before.descriptors && now.goroutines <= before.goroutines+1 // that of Eventually
	}, time.Minute, 50*time.Millisecond, "%+v, before %+v", &now, before)
	require.LessOrEqual(t, now.mappings, before.mappings+16, "mappings of the runtime's own come and go")
	require.LessOrEqual(t, now.heap, before.heap+1<<20, "1 MiB more for 500 clients are 2 KiB each")
}
