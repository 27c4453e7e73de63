package serve

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestRetire: a GPU is removed while a client is being admitted. Either the removal
// sees the client, or the client is refused. No client is admitted and then
// disconnected.
func TestRetire(t *testing.T) {
	d := NewPassThrough(newCard(t), passthrough.Config{})
	retired := true
	d.admit = func() error {
		retired = d.Retire(false)
		return nil
	}
	require.NoError(t, vfiouser.Admit(d))
	require.False(t, retired, "the client was disconnected")
	require.True(t, d.HasClient())
	require.False(t, d.Retire(false))
	d.Detached()
	require.False(t, d.HasClient())

	d.admit = func() error { return nil }
	require.NoError(t, vfiouser.Admit(d))
	vfiouser.Dismiss(d)
	require.False(t, d.HasClient(), "it was dismissed")
	stain := errors.New("a stain")
	d.admit = func() error { return stain }
	require.ErrorIs(t, vfiouser.Admit(d), stain)
	require.False(t, d.HasClient(), "it was refused")
	d.admit = func() error { panic("a bug") }
	require.Panics(t, func() { _ = vfiouser.Admit(d) })
	require.False(t, d.HasClient())

	d.admit = func() error { t.Error("a client was admitted"); return nil }
	require.True(t, d.Retire(false))
	require.ErrorIs(t, vfiouser.Admit(d), errRetired)
	require.False(t, d.HasClient())
}

// TestPagesOfAWholeCardThatDoNotReturn: while the card cannot move pages back from the memory that
// the last client had mapped, no client is admitted.
func TestPagesOfAWholeCardThatDoNotReturn(t *testing.T) {
	c := &stained{Card: newCard(t)}
	d := NewPassThrough(c, passthrough.Config{Map: aperture.MapPRAMIN})
	require.NoError(t, d.maps.OpenWindows())
	w := d.maps.Windows()[0]
	mem, err := unix.Mmap(int(w.File.Fd()), int64(w.Areas[0].Offset), 0x1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	mem[0] = 7
	c.stuck.Store(&errStuck)
	d.Detached()
	for range 2 {
		require.ErrorContains(t, d.Admit(), "a page sticks")
		require.ErrorContains(t, d.maps.OpenWindows(), "where the last client had them")
		require.Empty(t, d.maps.Windows())
	}
	c.stuck.Store(nil)
	require.NoError(t, d.Admit())
	require.NoError(t, d.maps.OpenWindows())
	mem[0] = 9
	var b [1]byte
	require.True(t, c.ReadVRAM(0, b[:]))
	require.EqualValues(t, 7, b[0], "the client before writes the next one's memory")
	d.Detached()
}

// waits is a card that counts the unmaps that would wait for it.
type waits struct {
	card.Mappings
	n int
}

func (w *waits) MapDMA(addr uint64, m card.Mapping) error { return w.Map(addr, m) }

func (w *waits) UnmapDMA(addr, n uint64) {
	if len(w.Unmap(addr, n)) > 0 {
		w.n++
	}
}

// TestOneWaitForASpan: the card is waited for once when a client takes away many ranges, also across gaps
// and ranges that the card cannot reach, and not for those outside.
func TestOneWaitForASpan(t *testing.T) {
	var w waits
	d := &Device{client: &hostSide{Memory: new(vfiouser.Memory)}, log: slog.New(slog.DiscardHandler)}
	d.pushDMA(&w)
	for _, addr := range []uint64{0, 0x1000, 0x2000, 0x5000, 0x7000, 0x9000, ^uint64(0) - 0x1fff} {
		mem := make([]byte, 0x1000)
		if addr == 0x7000 {
			mem = nil
		}
		require.NoError(t, d.client.Provide(vfiouser.MemoryRange{Addr: addr, Size: 0x1000, Read: true}, mem))
	}
	for i, c := range []struct{ addr, size, left uint64 }{{0x1000, 0x7000, 3}, {0x1000, 0x7000, 3}, {0, ^uint64(0), 0}} {
		require.NoError(t, d.client.Withdraw(c.addr, c.size))
		require.Equal(t, []int{1, 1, 2}[i], w.n)
		require.Len(t, d.client.Ranges(), int(c.left))
	}
	m, _ := w.At(0, false)
	require.Nil(t, m)
}
