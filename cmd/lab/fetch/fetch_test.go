package fetch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Many at once fill a folder once, and all see it whole.
func TestMakeOnce(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	dir := c.path("thing")
	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var k Kernel
			err := c.make(t.Context(), "it", dir, &k, nil, func(tmp string) error {
				fills.Add(1)
				k.Release = "one"
				time.Sleep(20 * time.Millisecond)
				return os.WriteFile(filepath.Join(tmp, "out", "file"), []byte("x"), 0o644)
			})
			if err != nil || k.Release != "one" || !exists(filepath.Join(dir, "file")) {
				t.Errorf("%+v, %v", k, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, fills.Load())
}

// The remains of a failed fetch do not count as fetched.
func TestMakeFails(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	dir := c.path("thing")
	var k Kernel
	boom := errors.New("boom")
	require.ErrorIs(t, c.make(t.Context(), "it", dir, &k, nil, func(string) error { return boom }), boom)
	require.False(t, exists(dir))

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "half"), 0o755))          // no stamp in it
	require.NoError(t, os.MkdirAll(c.path("tmp", "out", "left behind"), 0o755)) // of a process that died
	require.NoError(t, c.make(t.Context(), "it", dir, &k, nil, func(string) error { return nil }))
	require.False(t, exists(filepath.Join(dir, "half")))
	require.False(t, exists(filepath.Join(dir, "left behind")))
	require.False(t, exists(c.path("tmp")))
	require.True(t, stamped(dir, &k, nil))
}

// A folder that lacks a package is filled anew; one with more packages stays.
func TestMorePackages(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	fill := func(names ...string) (filled bool) {
		var m Mesa
		require.NoError(t, c.make(t.Context(), "it", c.path("thing"), &m, names, func(string) error {
			filled = true
			for _, n := range names {
				m.Packages = append(m.Packages, Package{Name: n, Version: "1"})
			}
			return nil
		}))
		require.True(t, stamped(c.path("thing"), &m, names))
		return filled
	}
	require.True(t, fill("mesa"))
	require.False(t, stamped(c.path("thing"), new(Mesa), []string{"mesa", "piglit"}))
	require.True(t, fill("mesa", "piglit"))
	require.False(t, fill("mesa"))
}

func TestLockWaits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), file, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	waited := false
	_, err = Lock(ctx, file, func() { waited = true })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, waited)
	unlock()
	unlock, err = Lock(t.Context(), file, nil)
	require.NoError(t, err)
	unlock()
}

func TestUserQEMU(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	fake := filepath.Join(t.TempDir(), "qemu")
	script := func(text string) {
		require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\n"+text), 0o755))
	}
	t.Setenv(EnvQEMU, fake)
	script(`case $1 in --version) echo "QEMU emulator version 9.2.0";; *) echo 'name "vfio-pci"';; esac`)
	_, err := c.QEMU(t.Context())
	require.ErrorContains(t, err, "QEMU 9.2.0 has no vfio-user-pci")
	script(`case $1 in --version) echo "QEMU emulator version 11.1.3 (x)";; *) echo 'name "vfio-user-pci", bus PCI';; esac`)
	q, err := c.QEMU(t.Context())
	require.NoError(t, err)
	require.Equal(t, "11.1.3", q.Version)
	require.Equal(t, []string{fake}, q.Argv)
	script("echo no libfoo >&2; exit 127")
	_, err = c.QEMU(t.Context())
	require.ErrorContains(t, err, "no libfoo")
}
