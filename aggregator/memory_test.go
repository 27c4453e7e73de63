package aggregator

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// cutFile is guest memory whose file was truncated.
type cutFile struct{ mem []byte }

func (cutFile) Acquire() {}
func (cutFile) Release() {}
func (c cutFile) Slice(addr uint64, n int, _ bool) []byte {
	if addr+uint64(n) > uint64(len(c.mem)) {
		return nil
	}
	return c.mem[addr : addr+uint64(n)]
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
	g.AttachMemory(cutFile{mem})
	p := make([]byte, 4)
	g.ReadPRAMIN(2<<24, 0, p)
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, p)
	g.WritePRAMIN(3<<24, 0, p)
	require.Equal(t, uint64(2), g.stats.BadWindow.Load())
	require.False(t, g.ReadTable(shadowpt.SystemCoherent, 0, make([]byte, 8192)))
	require.Panics(t, func() { // a bug of ours is not swallowed
		g.AttachMemory(buggy{})
		g.ReadPRAMIN(2<<24, 0, p)
	})
	g.AttachMemory(nil)
}

type buggy struct{ cutFile }

func (buggy) Slice(uint64, int, bool) []byte { panic("a bug") }

// TestUnmapWaitsForStepsOnly: memory that a guest's client takes away is gone for the card when
// the steps that began before have ended, whatever else the card does, and the guest's shadows
// follow at their next update.
func TestUnmapWaitsForStepsOnly(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	m := &rangeBus{cutFile{make([]byte, 1<<20)}, 0, 1 << 20}
	g.AttachMemory(m)
	other.AttachMemory(cutFile{make([]byte, 1<<20)})
	f.HoldAll(true)
	g.Preempt(1)
	eventually(t, g, func() bool { return !g.current.preempt.empty() })
	for _, c := range []struct {
		addr  uint64 // that goes
		unmap func()
	}{
		{0, func() {
			a.bus.Attach(g.index, &rangeBus{m.cutFile, 4096, 1 << 20}) // the client's own part
			g.Unmapped(0, 4096)
		}},
		{4096, g.DetachMemory},
	} {
		a.bus.Acquire() // a step of the card is under way
		require.NotNil(t, a.bus.Slice(g.BusAddress(c.addr), 4, false))
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.unmap()
		}()
		require.Eventually(t, func() bool { return a.bus.Slice(g.BusAddress(c.addr), 4, false) == nil }, patience, tick)
		select {
		case <-done:
			t.Fatal("the step may still use what it found")
		case <-time.After(50 * time.Millisecond):
		}
		a.bus.Release()
		<-done
	}
	require.NotNil(t, a.bus.Slice(other.BusAddress(0), 4, false))
	require.True(t, g.PreemptPending(), "the card has not answered yet")
	require.Empty(t, g.QuarantineReason())
	require.Equal(t, uint64(1), g.stats.Unmaps.Load())
}
