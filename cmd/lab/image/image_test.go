package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Images that were just used stay, and of the others as many as there is room for.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	keep := map[string]bool{}
	for name, c := range map[string]struct {
		size int64
		age  time.Duration
		keep bool
	}{
		"new": {room, 0, true}, "used": {room, minAge / 2, true}, "large": {1, 2 * minAge, false}, "old": {1, maxAge + time.Minute, false},
	} {
		p := filepath.Join(dir, name+".cpio")
		require.NoError(t, os.WriteFile(p, nil, 0o600))
		require.NoError(t, os.Truncate(p, c.size))
		require.NoError(t, os.Chtimes(p, time.Time{}, time.Now().Add(-c.age)))
		keep[p] = c.keep
	}
	require.NoError(t, prune(dir))
	for p, keep := range keep {
		require.Equal(t, keep, exists(p), p)
	}
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

// A program that only prints needs no Mesa; one that opens libraries or starts programs may.
func TestUsesLibC(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc: apt-get install gcc libc6-dev")
	}
	for source, want := range map[string]bool{
		`#include <stdio.h>
int main(void) { puts("hello"); }`: true,
		`#include <stdlib.h>
int main(void) { return system("clinfo"); }`: false,
		`#include <dlfcn.h>
int main(void) { return !dlopen("libOpenCL.so.1", RTLD_NOW); }`: false,
	} {
		bin := filepath.Join(t.TempDir(), "program")
		cmd := exec.CommandContext(t.Context(), "gcc", "-o", bin, "-x", "c", "-")
		cmd.Stdin = strings.NewReader(source)
		require.NoError(t, cmd.Run())
		require.Equal(t, want, usesLibC(bin), source)
	}
	require.False(t, usesLibC("image_test.go"))
}
