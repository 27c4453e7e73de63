package serve

import (
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// doorman is a device whose Admit is a function of the test.
type doorman struct {
	Observed
	admit func() error
}

func (d *doorman) Admit() error { return d.admit() }
func (d *doorman) Dismissed()   {}
func (d *doorman) Detached()    {}

// TestRetire: a GPU is removed while a client is being admitted. Either the removal
// sees the client, or the client is refused. No client is admitted and then
// disconnected.
func TestRetire(t *testing.T) {
	d := &doorman{}
	w := Count(d, slog.New(slog.NewTextHandler(io.Discard, nil)))
	retired := true
	d.admit = func() error {
		retired = w.Retire(false)
		return nil
	}
	require.NoError(t, vfiouser.Admit(w))
	require.False(t, retired, "the client was disconnected")
	require.True(t, w.HasClient())
	require.False(t, w.Retire(false))
	w.Detached()
	require.False(t, w.HasClient())

	d.admit = func() error { return nil }
	require.NoError(t, vfiouser.Admit(w))
	vfiouser.Dismiss(w)
	require.False(t, w.HasClient(), "it was dismissed")

	stain := errors.New("a stain")
	d.admit = func() error { return stain }
	require.ErrorIs(t, vfiouser.Admit(w), stain)
	require.False(t, w.HasClient(), "it was refused")
	d.admit = func() error { panic("a bug") }
	require.Panics(t, func() { _ = vfiouser.Admit(w) })
	require.False(t, w.HasClient())

	d.admit = func() error { t.Error("a client was admitted"); return nil }
	require.True(t, w.Retire(false))
	require.ErrorIs(t, vfiouser.Admit(w), errRetired)
	require.False(t, w.HasClient())
}
