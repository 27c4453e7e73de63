package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

func TestAccelAskedFor(t *testing.T) {
	a, err := chooseAccel(t.Context(), Config{Accel: AccelKVM}, Assets{})
	require.NoError(t, err)
	require.Equal(t, Accel{AccelKVM, "asked for"}, a)
}

// What is remembered of KVM counts; a failure counts for a day.
func TestAccelRemembered(t *testing.T) {
	if err := unix.Access("/dev/kvm", unix.R_OK|unix.W_OK); err != nil {
		a, err := chooseAccel(t.Context(), Config{}, Assets{})
		require.NoError(t, err)
		require.Equal(t, AccelTCG, a.Name)
		require.Contains(t, a.Reason, "/dev/kvm")
		return
	}
	dir := t.TempDir()
	t.Setenv(fetch.EnvCache, dir)
	// A QEMU that cannot start: trying KVM with it fails at once.
	a := Assets{QEMU: fetch.QEMU{Version: "1", Argv: []string{"/nowhere/qemu"}}, Kernel: fetch.Kernel{Release: "6.x"}}
	file := filepath.Join(dir, "accel", outcomeOf(a))
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	for _, c := range []struct {
		text string
		age  time.Duration
		want Accel
	}{
		{`{"name":"kvm","reason":"booted"}`, 2 * retryAfter, Accel{AccelKVM, "booted"}},
		{`{"name":"tcg","reason":"hangs"}`, 0, Accel{AccelTCG, "hangs"}},
		{`{"name":"tcg","reason":"hangs"}`, 2 * retryAfter, Accel{AccelTCG, "/nowhere/qemu"}},
		{`{damaged`, 0, Accel{AccelTCG, "/nowhere/qemu"}},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o644))
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(-c.age)))
		got, err := chooseAccel(t.Context(), Config{}, a)
		require.NoError(t, err)
		require.Equal(t, c.want.Name, got.Name, c.text)
		require.Contains(t, got.Reason, c.want.Reason, c.text)
		require.Equal(t, got, remembered(file), "the outcome is kept")
	}
}
