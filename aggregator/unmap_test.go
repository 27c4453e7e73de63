package aggregator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Memory that is unmapped is removed in time, for any behaviour of the card, and not before
// the last step that may use it has ended. A reset gives the guest its remaining memory.
func TestUnmappedIsBounded(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: time.Hour, UnmapTimeout: 50 * time.Millisecond})
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	for id := range uint8(8) {
		bindChannel(t, g, id)
	}
	g.AttachMemory(cutFile{make([]byte, 1<<20)})
	other.AttachMemory(cutFile{make([]byte, 1<<20)})
	at := a.bus.at(g.index, 0)
	require.NotNil(t, a.bus.Slice(at, 4, false))
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, true)
	}
	a.bus.Acquire() // a step of the card is under way
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Unmapped(0, 4096)
	}()
	require.Eventually(t, func() bool { return a.bus.Slice(at, 4, false) == nil }, patience, tick)
	require.Never(t, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, 50*time.Millisecond, tick, "the step may still use what it found")
	a.bus.Release()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it waits for the card")
	}
	require.NotEmpty(t, g.QuarantineReason())
	g.Unmapped(4096, 4096) // of what the card no longer reaches
	require.NotNil(t, a.bus.Slice(a.bus.at(other.index, 0), 4, false))
	require.Empty(t, other.QuarantineReason())
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, false)
	}
	require.NoError(t, g.Reset())
	require.Empty(t, g.QuarantineReason())
	require.NotNil(t, a.bus.Slice(at, 4, false))
	require.Equal(t, uint64(1), g.stats.Unmaps.Load(), "the other was removed already")
}

// TestDetachMemory: the card's new steps lose a guest's memory before the steps under way are
// waited for.
func TestDetachMemory(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: time.Hour})
	g, _ := addGuest(t, a, "a")
	g.AttachMemory(cutFile{make([]byte, 1<<20)})
	at := a.bus.at(g.index, 0)
	require.NotNil(t, a.bus.Slice(at, 4, false))
	f.hold(regMMUCtrl, true) // a step is under way
	defer f.hold(regMMUCtrl, false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.DetachMemory()
	}()
	require.Eventually(t, func() bool { return a.bus.Slice(at, 4, false) == nil }, patience, tick)
	require.Never(t, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, 50*time.Millisecond, tick, "the step may still use what it found")
	f.hold(regMMUCtrl, false)
	<-done
}

// A server that was descheduled, together with the card, for the whole time-out of an unmap
// is not late: the guest keeps its memory. A card that does not confirm is waited for until
// the time-out and a little longer.
func TestUnmapByDescheduledServer(t *testing.T) {
	const wait = time.Second
	for _, row := range []struct {
		name string
		late time.Duration // of the card after the time-out
		lost bool
	}{
		{"in time", -time.Millisecond, false},
		{"with the last looks", awaitGrace * pollMax / 2, false},
		{"for good", time.Hour, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, f := newAgg(t, Options{CardTimeout: 2 * time.Hour, UnmapTimeout: wait})
				g, _ := addGuest(t, a, "a")
				bindChannel(t, g, 1)
				g.AttachMemory(cutFile{make([]byte, 1<<20)})
				f.hold(regMMUCtrl, true)
				resumeChannel := time.AfterFunc(wait+row.late, func() { f.hold(regMMUCtrl, false) })
				begin := time.Now()
				g.Unmapped(0, 4096)
				took := time.Since(begin)
				require.Equal(t, row.lost, g.QuarantineReason() != "", "%v", took)
				require.Equal(t, !row.lost, a.bus.Slice(a.bus.at(g.index, 8192), 4, false) != nil)
				require.LessOrEqual(t, took, wait+awaitGrace*pollMax)
				if resumeChannel.Stop() {
					f.hold(regMMUCtrl, false)
				}
			})
		})
	}
}

// A round does not wait for the card again and again: a reset with many channels is
// answered in time by a card that has stopped.
func TestRoundWaitsOnce(t *testing.T) {
	const wait = 20 * time.Millisecond
	a, f := newAgg(t, Options{CardTimeout: wait})
	g, _ := addGuest(t, a, "a")
	var ids []uint32
	for id := range uint8(64) {
		bindChannel(t, g, id)
		ids = append(ids, uint32(id))
	}
	list(t, g, ids...)
	before := a.ctl.timeouts.Load()
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, true)
	}
	require.NoError(t, g.Reset())
	// Of the first channel's end: the runlist and the preempt.
	require.LessOrEqual(t, a.ctl.timeouts.Load()-before, uint64(2))
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, false)
	}
}
