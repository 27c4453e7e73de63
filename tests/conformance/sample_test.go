package conformance

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// builtLibrary is the library in the cache; without one the test is skipped.
func builtLibrary(t *testing.T) fetch.LibVFIOUser {
	t.Helper()
	if !libvfiouser.Built {
		t.Skip("the library's own samples are tried with the library's tag: make test-libvfio-user")
	}
	dir, err := fetch.DefaultDir()
	require.NoError(t, err)
	l, ok := (&fetch.Cache{Dir: dir}).BuiltLibVFIOUser()
	if !ok {
		t.Skip("libvfio-user and its samples have not been built: make libvfio-user")
	}
	return l
}

// sample returns a dial that starts the library's own server for each connection: it ends with its client.
func sample(t *testing.T) func() (fd int, err error) {
	library, dir, n := builtLibrary(t), t.TempDir(), 0
	ctx, cancel := context.WithCancel(context.Background())
	var servers sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		servers.Wait()
	})
	return func() (fd int, err error) {
		n++
		path := filepath.Join(dir, strconv.Itoa(n))
		cmd := exec.CommandContext(ctx, library.Sample("server"), path)
		if err := cmd.Start(); err != nil {
			return -1, err
		}
		servers.Go(func() { _ = cmd.Wait() }) // however it ends
		for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
			if fd, err = client.DialFD(path); err == nil || time.Since(began) > time.Minute {
				return fd, err
			}
		}
	}
}

// knownDeviations of the library's sample, by case.
var knownDeviations = map[string]string{
	"region info/configuration space": configFlags,
	"io fds/configuration space":      configFlags,
	"io fds/all of each region":       configFlags,
	"region access/BAR, last 4 bytes": "BAR0 is a time_t, and takes 8 bytes only",
}

const configFlags = "the library's own configuration space has no flags, and is no valid region for descriptors"

// TestSuiteOfSample: the suite finds exactly the known deviations of the library's own sample
// server.
func TestSuiteOfSample(t *testing.T) {
	passed, found := 0, map[string]string{}
	require.NoError(t, conformance.Run(t.Context(), conformance.Options{Dial: sample(t)}, func(r conformance.Result) {
		at := r.Family + "/" + r.Name
		switch {
		case r.Outcome == conformance.Passed:
			passed++
		case r.Outcome == conformance.Failed && knownDeviations[at] != "":
			found[at] = r.Found
		case r.Outcome == conformance.Failed:
			t.Errorf("%s (%s): %s", at, r.Mark, r.Found)
		}
	}))
	for at := range knownDeviations {
		require.Contains(t, found, at, "it is as specified now: take it off the list")
	}
	require.Greater(t, passed, 140)
}
