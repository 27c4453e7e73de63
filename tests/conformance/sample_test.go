package conformance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/fetch"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// sample is one of the library's own servers. Some end with each client: each
// connection then starts another.
type sample struct {
	t    *testing.T
	exe  string
	path string
	once bool // it ends with its first client

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

func newSample(t *testing.T, name string) *sample {
	l := builtLibrary(t)
	s := &sample{t: t, exe: l.Sample(name), path: filepath.Join(t.TempDir(), "s")}
	t.Cleanup(s.stop)
	return s
}

// dial connects to a server that has had no client: the samples serve one, and
// a connection made while they end would be lost with them. Only one whose
// client stays is connected to again.
func (s *sample) dial() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.once && s.cmd != nil {
		select {
		case <-s.ended:
		case <-time.After(500 * time.Millisecond):
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if !s.running() {
			if err := s.start(); err != nil {
				return -1, err
			}
		}
		fd, err := conformance.DialOnce(s.path)
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
	stdin, err := cmd.StdinPipe() // null reads it, and ends with it
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.starts++
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // however it ends
		stdin.Close()
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	return nil
}

func (s *sample) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		_ = s.cmd.Process.Kill() // it may have ended by itself
	}
	if s.cmd != nil {
		<-s.ended
	}
}

// deviations are what the samples are known to do otherwise than the
// specification says, by case.
var deviations = map[string]map[string]string{
	"server": {
		"region info/configuration space": "the library's own configuration space has no flags",
		"io fds/configuration space":      "for the same reason it is no valid region here",
		"io fds/all of each region":       "for the same reason",
		"region access/BAR, last 4 bytes": "BAR0 is a time_t, and takes 8 bytes only",
	},
	"gpio-pci-idio-16": {
		"region info/configuration space": "the library's own configuration space has no flags",
		"io fds/configuration space":      "for the same reason it is no valid region here",
		"io fds/all of each region":       "for the same reason",
	},
}

// TestSuiteOfSamples: the suite runs against the library's own sample servers,
// and finds what they do otherwise, no less and no more.
func TestSuiteOfSamples(t *testing.T) {
	for name, known := range deviations {
		t.Run(name, func(t *testing.T) {
			s := newSample(t, name)
			s.once = name == "server"
			o := conformance.Options{Dial: s.dial}
			if !s.once {
				// It ends with a client that does not get through the negotiation, and takes
				// those along that have connected by then.
				o.Families = slices.DeleteFunc(conformance.Families(), func(f string) bool {
					return f == "negotiation" || f == "disconnect" || f == "descriptors"
				})
			}
			passed, found := 0, map[string]string{}
			require.NoError(t, conformance.Run(t.Context(), o, func(r conformance.Result) {
				switch r.Outcome {
				case conformance.Passed:
					passed++
					if r.Mark == conformance.Choice {
						t.Logf("library's choice: %s: %s: %s", r.Family, r.Name, r.Found)
					}
				case conformance.Failed:
					at := r.Family + "/" + r.Name
					found[at] = r.Found
					if why := known[at]; why != "" {
						t.Logf("known: %s: %s: %s", at, r.Found, why)
						return
					}
					t.Errorf("%s (%s): %s", at, r.Mark, r.Found)
				}
			}))
			for at := range known {
				require.Contains(t, found, at, "it is as specified now: take it off the list")
			}
			require.Greater(t, passed, 140)
			t.Logf("%d passed, %d deviate; the sample was started %d times", passed, len(found), s.starts)
		})
	}
}
