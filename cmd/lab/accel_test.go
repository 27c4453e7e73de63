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
	require.Equal(t, Accel{Name: AccelKVM, Reason: "asked for"}, a)
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
	key := "host " + hostRelease() + ", QEMU 1, guest 6.x"
	file := filepath.Join(dir, "accel.json")
	for _, c := range []struct {
		name   string
		known  verdict
		accel  string
		reason string
	}{
		{"works", verdict{Works: true, Reason: "booted"}, AccelKVM, "booted"},
		{"failed today", verdict{Reason: "hangs", When: time.Now()}, AccelTCG, "hangs"},
		{"failed long ago", verdict{Reason: "hangs", When: time.Now().Add(-2 * retryAfter)}, AccelTCG, "/nowhere/qemu"},
	} {
		require.NoError(t, writeJSON(file, map[string]verdict{key: c.known}))
		got, err := chooseAccel(t.Context(), Config{}, a)
		require.NoError(t, err, c.name)
		require.Equal(t, c.accel, got.Name, c.name)
		require.Contains(t, got.Reason, c.reason, c.name)
	}
	require.NoError(t, os.WriteFile(file, []byte("{damaged"), 0o644))
	got, err := chooseAccel(t.Context(), Config{}, a)
	require.NoError(t, err)
	require.Equal(t, AccelTCG, got.Name)
}
