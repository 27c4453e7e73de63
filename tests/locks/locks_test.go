//go:build locks

// Package locks counts the locks of an invalidate and of the doorbell after it. tools/test locks
// builds it with a package sync that logs who takes one.
package locks

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
)

// TestLocks holds the counts of a guest whose windows are mapped, with and without a neighbour. The
// locks of its driver, in this process, are not counted.
func TestLocks(t *testing.T) {
	r := rig.NewScheduled(t, 0, sched.Default())
	for _, name := range []string{"neighbour", "guest"} {
		g := r.Join(aggregator.GuestConfig{Name: name, Map: aperture.MapAll})
		buf, ch := g.Buffer(1<<30, 1<<20, guest.Small), g.Channel(1, guest.ChannelConfig{})
		require.NoError(t, ch.Copy(guest.M2MF, 1<<30, 1<<30+4096, 4096))
		require.NoError(t, ch.Finish())
		count(t, "a read of BAR0", 2, func() error { g.Raw().Reg(0x9400); return nil })
		count(t, "an invalidate", 25, func() error { return g.Space.MapPart(1<<30, buf, 4096, 4096, guest.Small) })
		count(t, "the doorbell after it", 60, func() error { return ch.Copy(guest.M2MF, 1<<30, 1<<30+8192, 4) })
	}
}

// count logs the locks that are taken from do on until nobody takes any.
func count(t *testing.T, what string, most int, do func() error) {
	quiet := func() {
		for was, now := uint64(1), uint64(0); was != now; was, now = now, sync.Locks.Load() {
			time.Sleep(20 * time.Millisecond)
		}
	}
	quiet()
	sync.Locks.Store(0)
	err := do()
	quiet()
	log := sync.LockLog[:sync.Locks.Load()]
	require.NoError(t, err)
	sites, n := "", 0
	for _, pcs := range log {
		frames, site := runtime.CallersFrames(pcs[:]), "\n"
		for f, more := frames.Next(); more; f, more = frames.Next() {
			site += " " + strings.TrimPrefix(f.Function, "github.com/umbra-gpu/umbra/")
		}
		if !strings.Contains(site, " vfiouser/client.") && !strings.Contains(site, " devmodel/guest.") {
			sites, n = sites+site, n+1
		}
	}
	t.Logf("%s takes %d locks:%s", what, n, sites)
	require.LessOrEqual(t, n, most, what)
}
