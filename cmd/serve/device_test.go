package serve

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
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
	c.stick(errors.New("a page sticks"))
	d.Detached()
	for range 2 {
		require.ErrorContains(t, d.Admit(), "a page sticks")
		require.ErrorContains(t, d.maps.OpenWindows(), "where the last client had them")
		require.Empty(t, d.maps.Windows())
	}
	c.stick(nil)
	require.NoError(t, d.Admit())
	require.NoError(t, d.maps.OpenWindows())
	mem[0] = 9
	var b [1]byte
	require.True(t, c.ReadVRAM(0, b[:]))
	require.EqualValues(t, 7, b[0], "the client before writes the next one's memory")
	d.Detached()
}
