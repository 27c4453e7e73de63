package aggregator

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// mapRAM gives a guest so many bytes of system memory at bus address 0.
func mapRAM(t require.TestingT, g *Guest, n int) {
	require.NoError(t, g.MapDMA(0, card.Mapping{Mem: make([]byte, n), Write: true}))
}

// mapHalves gives a guest system memory at bus address 0, of which the upper half is read-only.
func mapHalves(t require.TestingT, g *Guest, n int) {
	mapRAM(t, g, n/2)
	require.NoError(t, g.MapDMA(uint64(n/2), card.Mapping{Mem: make([]byte, n/2)}))
}

// reach returns what the card finds at a guest's bus address.
func reach(f *fakeCard, g *Guest, addr uint64, write bool) *card.Mapping {
	m, _ := f.Mappings.At(g.BusAddress(addr), write)
	return m
}

func TestMemoryCutShort(t *testing.T) {
	fd, err := unix.MemfdCreate("cut", 0)
	require.NoError(t, err)
	defer os.NewFile(uintptr(fd), "cut").Close()
	require.NoError(t, unix.Ftruncate(fd, 1<<20))
	mem, err := unix.Mmap(fd, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, unix.Ftruncate(fd, 0))

	a, _ := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	require.NoError(t, g.MapDMA(0, card.Mapping{Mem: mem, Write: true}))
	p := make([]byte, 4)
	g.ReadPRAMIN(2<<24, 0, p)
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, p)
	g.WritePRAMIN(3<<24, 0, p)
	require.Equal(t, uint64(2), g.stats.Windows.BadWindow.Load())
	require.False(t, g.mem.ReadTable(shadowpt.SystemCoherent, 0, make([]byte, 8192)))
	g.DetachMemory()
	require.NoError(t, g.MapDMA(0, card.Mapping{Mem: make([]byte, 4), Write: true, Wrote: func(off, n uint64) { panic("a bug") }}))
	require.Panics(t, func() { g.WritePRAMIN(2<<24, 0, p) }, "a bug of ours is not swallowed")
}

// TestUnmapWaitsForStepsOnly: memory that a guest's client takes away is gone for the card when
// the steps that began before have ended, whatever else the card does, and the guest's shadows
// follow at their next update.
func TestUnmapWaitsForStepsOnly(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	for addr := uint64(0); addr < 3<<12; addr += 1 << 12 {
		require.NoError(t, g.MapDMA(addr, card.Mapping{Mem: make([]byte, 1<<12), Write: true}))
	}
	mapRAM(t, other, 1<<20)
	f.HoldAll(true)
	g.Preempt(1)
	eventually(t, g, func() bool { return !g.work.current.Preempt.Empty() })
	for _, c := range []struct {
		addr  uint64 // that goes, or stays
		unmap func()
		gone  bool
	}{
		{0, func() {}, false},
		{0, func() { g.UnmapDMA(0, 4096) }, true},
		{4096, g.DetachMemory, true},
	} {
		f.Steps.RLock() // a step of the card is under way
		require.NotNil(t, reach(f, g, c.addr, false))
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.unmap()
		}()
		require.Eventually(t, func() bool { return g.dma().Covers(c.addr, 4, false) != c.gone }, patience, tick)
		if c.gone {
			select {
			case <-done:
				t.Fatal("the step may still use what it found")
			case <-time.After(50 * time.Millisecond):
			}
		}
		require.True(t, other.dma().Covers(0, 1<<20, true), "another guest's memory is not delayed")
		f.Steps.RUnlock()
		<-done
		require.Equal(t, c.gone, reach(f, g, c.addr, false) == nil)
	}
	require.NotNil(t, reach(f, other, 0, false))
	require.True(t, g.PreemptPending(), "the card has not answered yet")
	require.Empty(t, g.QuarantineReason())
	require.Equal(t, uint64(1), g.stats.Unmaps.Load())
}
