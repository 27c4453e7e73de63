package aggregator

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// The windows of a guest whose memory is in pieces are contiguous, and show only its own
// memory.
func TestWindowsOverPieces(t *testing.T) {
	a, f := newAgg(t, Options{})
	var filler []*Guest
	for i := range 9 {
		g, err := a.AddGuest(GuestConfig{Name: fmt.Sprint(i), VRAM: 9 << 20, Tables: 1 << 20, Channels: 1}, &recorder{})
		if err != nil {
			break
		}
		filler = append(filler, g)
	}
	for i := 0; i < len(filler); i += 2 {
		require.NoError(t, filler[i].Remove())
	}
	g, err := a.AddGuest(GuestConfig{Name: "pieces", VRAM: 24 << 20, Tables: 1 << 20}, &recorder{})
	require.NoError(t, err)
	require.Greater(t, len(g.Extents()), 1)
	model := make([]byte, 24<<20)
	before := append([]byte(nil), f.vram...)
	mine := make([]bool, len(f.vram)>>12)
	for _, e := range g.Extents() {
		for p := e.Card >> 12; p < (e.Card+e.Size)>>12; p++ {
			mine[p] = true
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		border := g.Extents()[1].Guest
		addr := rapid.OneOf(
			rapid.Uint64Range(border-16, border+16), rapid.Uint64Range(24<<20-16, 24<<20+16), rapid.Uint64Range(0, 1<<30),
		).Draw(t, "address")
		p := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "bytes")
		win, off := uint32(addr>>16), uint32(addr&0xffff)
		fits := addr < uint64(len(model)) && addr+uint64(len(p)) <= uint64(len(model))
		g.WritePRAMIN(win, off, p)
		if fits {
			copy(model[addr:], p)
		}
		got := make([]byte, len(p))
		g.ReadPRAMIN(win, off, got)
		for i := range got {
			want := byte(0xff)
			if fits {
				want = model[addr+uint64(i)]
			}
			require.Equal(t, want, got[i])
		}
		_, ok := g.WriteBAR(1, addr, p[:1])
		require.Equal(t, addr < uint64(len(model)), ok)
		if ok {
			model[addr] = p[0]
		}
	})
	for p := range mine {
		if !mine[p] {
			require.Equal(t, before[p<<12:(p+1)<<12], f.vram[p<<12:(p+1)<<12])
		}
	}
}

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
