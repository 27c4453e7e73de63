package conformance

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

type footprint struct {
	descriptors, goroutines, mappings, threads int
	resident                                   int // KiB
}

func measure(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	runtime.GC()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	field := func(name string) int {
		_, rest, ok := strings.Cut(string(status), "\n"+name+":")
		require.True(t, ok)
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		return n
	}
	return footprint{len(fds), runtime.NumGoroutine(), strings.Count(string(maps), "\n"), field("Threads"), field("VmRSS")}
}

// TestGrowth: many clients negotiate, map memory with a descriptor, attach an eventfd, and
// disconnect in the middle of a message or immediately. The server keeps no resources of them, and
// leaves none when it ends.
func TestGrowth(t *testing.T) {
	rounds := scale.Of(500, 10_000)
	eachTransport(t, func(t *testing.T, by maker) {
		dev := newEverything(t)
		fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Ftruncate(fd, 1<<20))
		irq, err := client.NewEventFD()
		require.NoError(t, err)
		defer irq.Close()
		visit := func(tr vfiouser.Transport, path string, leave bool) {
			c, err := client.Dial(path, nil)
			require.NoError(t, err)
			defer c.Close()
			m := wire.DMAMapRequest{Argsz: wire.DMAMapSize, Flags: 3, Addr: 0x1000, Size: 1 << 20}
			_, err = c.Call(wire.DMAMap, wire.Append(nil, m), fd)
			require.NoError(t, err)
			require.NoError(t, c.SetIRQs(wire.IRQDataEventFD|wire.IRQActionTrigger, vfiouser.IRQMSIX, 0, 1, nil, irq.FD))
			var stray []int
			if _, ok := tr.(*vfiouser.Server); ok { // the library never closes descriptors of half a header; the suite reports that
				stray = []int{fd}
			}
			if leave {
				require.NoError(t, c.Send([]byte{1, 0, 4, 0, 32, 0, 0}, stray...))
			}
		}
		serve := func(clients, rounds int) {
			t.Run("server", func(t *testing.T) {
				tr, path := serveAt(t, by, dev)
				for i := range clients { // pools and caches fill
					visit(tr, path, i%2 == 0)
				}
				before := measure(t)
				for i := range rounds {
					visit(tr, path, i%2 == 0)
				}
				if rounds > 0 {
					requireNoGrowth(t, before)
					require.GreaterOrEqual(t, tr.Stats().Clients, uint64(rounds))
				}
			})
		}
		serve(500, rounds)
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
	require.LessOrEqual(t, now.threads, before.threads+8, "the runtime starts some when it likes to")
	require.LessOrEqual(t, now.mappings, before.mappings+16, "mappings of the runtime's own come and go")
	require.LessOrEqual(t, now.resident, before.resident+16<<10, "16 MiB more for 10,000 clients are 1.6 KiB each")
}
