package driver

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// TestCoalescerServesAllWaiters: whoever asks while an operation is under way takes part in the
// next one.
func TestCoalescerServesAllWaiters(t *testing.T) {
	var c coalescer
	c.init()
	begun, release := make(chan struct{}, 1), make(chan struct{})
	runs := 0
	run := func(*batch) bool {
		runs++
		begun <- struct{}{}
		<-release
		return true
	}
	var wg sync.WaitGroup
	var asked atomic.Int64
	ask := func() {
		wg.Go(func() { assert.True(t, c.do(func(*batch) { asked.Add(1) }, run)) })
	}
	ask()
	<-begun
	for range 50 {
		ask()
	}
	require.Eventually(t, func() bool { return asked.Load() == 51 }, patience, tick)
	close(release)
	<-begun
	wg.Wait()
	require.Equal(t, 2, runs)
}

// TestTimeoutOfOneCaller: an operation that the card does not complete for one caller fails for no
// other that took part in it.
func TestTimeoutOfOneCaller(t *testing.T) {
	var c coalescer
	c.init()
	const stuck = 1
	begun, release := make(chan struct{}, 1), make(chan struct{})
	run := func(b *batch) bool {
		if len(b.dirs) == 0 {
			close(begun)
			<-release
		}
		return !slices.Contains(b.dirs, stuck)
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.do(func(*batch) {}, run) })
	<-begun
	var joined atomic.Int64
	for dir := range uint64(4) {
		wg.Go(func() {
			assert.Equal(t, dir != stuck, c.do(func(b *batch) { b.dirs = append(b.dirs, dir); joined.Add(1) }, run))
		})
	}
	require.Eventually(t, func() bool { return joined.Load() == 4 }, patience, tick)
	close(release)
	wg.Wait()
}

// TestInvalidateNamesDirectories: an invalidate names directories, and all of the card's only for
// more than fit.
func TestInvalidateNamesDirectories(t *testing.T) {
	f := fakecard.New(4 << 20)
	d := newDriver(t, f, Options{invalidateDirs: 3})
	s := newShare(t, d, 0, 1)
	one := uint32(gf100.InvalidateGo | gf100.InvalidateAllPages)
	for _, c := range []struct {
		dirs, pdbs []uint32 // addresses in pages
		command    uint32
	}{
		{nil, []uint32{uint32(s.runs[0].Addr >> 12)}, one},
		{[]uint32{5}, []uint32{5}, one},
		{[]uint32{5, 6, 7}, []uint32{5, 6, 7}, one},
		{[]uint32{5, 6, 7, 8}, []uint32{0}, one | gf100.InvalidateAllDirs},
	} {
		f.Forget()
		var spaces []card.Space
		for _, dir := range c.dirs {
			spaces = append(spaces, spaceAt(uint64(dir)<<12))
		}
		require.True(t, s.Invalidate(spaces...))
		var want []fakecard.Write
		for _, pdb := range c.pdbs {
			want = append(want, fakecard.Write{Reg: regInvalidatePDB, V: pdb << 4}, fakecard.Write{Reg: regInvalidate, V: c.command})
		}
		require.Equal(t, want, f.WritesTo(0, 1<<24))
	}
}

// frozenCard is asked by a server that stands still for a while at one poll, and with it the card.
// The card completes what it was asked some polls later.
type frozenCard struct {
	*fakecard.Card
	at, need int // the poll, and how many more the card takes
	polls    int
}

const (
	frozenWait = 500 * time.Millisecond
	frozenFor  = 600 * time.Millisecond
)

func (f *frozenCard) Read32(bar int, off uint64) uint32 {
	v := f.Card.Read32(bar, off)
	if uint32(off) == regEngRunlist {
		if f.polls++; f.polls == f.at {
			time.Sleep(frozenFor)
		}
		f.Hold(regEngRunlist, f.polls < f.at+f.need)
	}
	return v
}

// TestDescheduledServer: a server that did not run for longer than it waits for the card finds that
// the card was no later than itself, whenever in the wait that was. A card that does not answer is
// waited for to the bound and a little longer.
func TestDescheduledServer(t *testing.T) {
	for _, at := range []int{1, 10, 40, 200} {
		for _, need := range []int{3, pollGrace - 1} {
			t.Run(fmt.Sprintf("at poll %d, for %d polls", at, need), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &frozenCard{Card: fakecard.New(1 << 20), at: at, need: need}
					d := newDriver(t, f, Options{Timeout: frozenWait})
					f.Hold(regEngRunlist, true)
					require.True(t, d.commitRunlist())
					require.Equal(t, at+need+1, f.polls)
				})
			})
		}
	}
	for _, wait := range []time.Duration{time.Nanosecond, 10 * time.Millisecond, frozenWait} {
		t.Run(fmt.Sprintf("for good, %v", wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakecard.New(1 << 20)
				d := newDriver(t, f, Options{Timeout: wait})
				f.HoldAll(true)
				begin := time.Now()
				require.False(t, d.commitRunlist())
				took := time.Since(begin)
				require.Greater(t, took, wait)
				require.LessOrEqual(t, took, wait+pollGrace*pollMax)
			})
		})
	}
}
