package conformance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// sample is the library's own server. It ends with each client: each connection starts another.
type sample struct {
	exe  string
	path string

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{}
	starts int
}

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

func newSample(t *testing.T) *sample {
	l := builtLibrary(t)
	s := &sample{exe: l.Sample("server"), path: filepath.Join(t.TempDir(), "s")}
	t.Cleanup(s.stop)
	return s
}

// dial connects to a server that has had no client: the sample serves one, and a connection made
// while it ends would be lost with it.
func (s *sample) dial() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		select {
		case <-s.ended: // its client has gone, and it goes as soon as it has a processor
		case <-time.After(3 * time.Second): // its client is there: this is a second one
		}
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if !s.running() {
			if err := s.start(); err != nil {
				return -1, err
			}
		}
		fd, err := client.DialFD(s.path)
		if err == nil || time.Now().After(deadline) {
			return fd, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (s *sample) running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func (s *sample) start() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cmd := exec.CommandContext(context.Background(), s.exe, s.path)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.starts++
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // however it ends
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	return nil
}

func (s *sample) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		s.kill()
	}
}

func (s *sample) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
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
	s := newSample(t)
	passed, found := 0, map[string]string{}
	require.NoError(t, conformance.Run(t.Context(), conformance.Options{Dial: s.dial}, func(r conformance.Result) {
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
	t.Logf("%d passed, %d deviate; the sample was started %d times", passed, len(found), s.starts)
}
