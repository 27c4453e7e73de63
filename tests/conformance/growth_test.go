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

var rounds = scale.Of(500, 10_000)

// TestGrowth: many clients negotiate, map memory with a descriptor, attach an eventfd, and
// disconnect in the middle of a message or immediately. The server keeps no resources of
// them.
func TestGrowth(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		dev := newEverything(t)
		tr, path := serveAt(t, by, dev)
		fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Ftruncate(fd, 1<<20))
		irq, err := client.NewEventFD()
		require.NoError(t, err)
		defer irq.Close()
		stray := []int{fd}
		if _, ok := tr.(*vfiouser.Server); !ok {
			stray = nil // the library never closes descriptors of half a header; the suite reports that
		}
		visit := func(i int) {
			c, err := client.Dial(path, nil)
			require.NoError(t, err)
			defer c.Close()
			m := wire.DMAMapRequest{Argsz: wire.DMAMapSize, Flags: 3, Addr: 0x1000, Size: 1 << 20}
			_, err = c.Call(wire.DMAMap, wire.Append(nil, m), fd)
			require.NoError(t, err)
			require.NoError(t, c.SetIRQs(wire.IRQDataEventFD|wire.IRQActionTrigger, vfiouser.IRQMSIX, 0, 1, nil, irq.FD))
			if i%2 == 0 { // a part of a message
				require.NoError(t, c.Send([]byte{1, 0, 4, 0, 32, 0, 0}, stray...))
			}
		}
		for i := range 500 { // pools and caches fill
			visit(i)
		}
		before := settled(t, path, footprint{})
		for i := range rounds {
			visit(i)
		}
		after := settled(t, path, before)
		t.Logf("before %+v", before)
		t.Logf("after  %+v", after)
		require.LessOrEqual(t, after.descriptors, before.descriptors)
		require.LessOrEqual(t, after.goroutines, before.goroutines)
		require.LessOrEqual(t, after.threads, before.threads+8, "the runtime starts some when it likes to")
		require.LessOrEqual(t, after.mappings, before.mappings+16, "mappings of the runtime's own come and go")
		require.LessOrEqual(t, after.resident, before.resident+16<<10, "16 MiB more for 10,000 clients are 1.6 KiB each")
		require.GreaterOrEqual(t, tr.Stats().Clients, uint64(rounds))
	})
}

// settled measures after the server has ended the last client: it serves one more client,
// and waits until the open resources are back at their former number, or a time-out.
func settled(t *testing.T, path string, was footprint) (now footprint) {
	c, err := client.Dial(path, nil)
	require.NoError(t, err)
	c.Close()
	for end := time.Now().Add(time.Minute); ; {
		time.Sleep(50 * time.Millisecond)
		now = measure(t)
		down := now.descriptors <= was.descriptors && now.goroutines <= was.goroutines
		if was == (footprint{}) || down || time.Now().After(end) {
			return now
		}
	}
}
