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

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// sample is one of the library's own servers. Some end with each client: each
// connection then starts another.
type sample struct {
	t    *testing.T
	exe  string
	path string
	sampleKind

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
	s := &sample{t: t, exe: l.Sample(name), path: filepath.Join(t.TempDir(), "s"), sampleKind: samples[name]}
	t.Cleanup(s.stop)
	return s
}

// dial connects to a server that has had no client: most samples serve one, and
// a connection made while they end would be lost with them. Only one that
// serves the next client as well is connected to again.
func (s *sample) dial() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cmd == nil:
	case s.stays:
		s.kill()
	case s.once:
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
	if s.cmd != nil {
		s.kill()
	}
}

func (s *sample) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// sampleKind is a sample's treatment of clients, and its known deviations from the
// specification, by case.
type sampleKind struct {
	once  bool // it serves one client, and ends
	stays bool // it serves one client only, and then continues to run
	known map[string]string
	// without are the families that do not apply.
	without []string
}

const configFlags = "the library's own configuration space has no flags, and is no valid region for descriptors"

var samples = map[string]sampleKind{
	"server": {once: true, known: reasons(map[string][]string{
		configFlags: {"region info/configuration space", "io fds/configuration space", "io fds/all of each region"},
		"BAR0 is a time_t, and takes 8 bytes only": {"region access/BAR, last 4 bytes"},
	})},
	// It ends with a client that does not get through the negotiation, and takes
	// those along that have connected by then.
	"gpio-pci-idio-16": {without: []string{"negotiation", "disconnect", "descriptors"}, known: reasons(map[string][]string{
		configFlags: {"region info/configuration space", "io fds/configuration space", "io fds/all of each region"},
	})},
	// It has no DMA.
	"null": {stays: true, without: []string{"dma map", "dma unmap"}, known: reasons(map[string][]string{
		configFlags: {"region info/configuration space", "io fds/configuration space", "io fds/all of each region"},
		"a second connection ends the sample's program": {"disconnect/a second client"},
		"a device without DMA has its messages answered unread": {
			"reset/memory survives",
			"pipelining/descriptors of messages in a row", "descriptors/200 refused DMA_MAPs",
		},
	})},
}

func reasons(lists map[string][]string) map[string]string {
	out := map[string]string{}
	for why, list := range lists {
		for _, at := range list {
			out[at] = why
		}
	}
	return out
}

// TestSuiteOfSamples: the suite finds exactly the known deviations of the library's own
// sample servers.
func TestSuiteOfSamples(t *testing.T) {
	for name, kind := range samples {
		t.Run(name, func(t *testing.T) {
			s := newSample(t, name)
			o := conformance.Options{Dial: s.dial, Families: slices.DeleteFunc(conformance.Families(), func(f string) bool {
				return slices.Contains(kind.without, f)
			})}
			passed, found := 0, map[string]string{}
			require.NoError(t, conformance.Run(t.Context(), o, func(r conformance.Result) {
				switch r.Outcome {
				case conformance.Passed:
					passed++
					if r.Mark == conformance.Choice {
						t.Logf("server's choice: %s: %s: %s", r.Family, r.Name, r.Found)
					}
				case conformance.Failed:
					at := r.Family + "/" + r.Name
					found[at] = r.Found
					if why := kind.known[at]; why != "" {
						t.Logf("known: %s: %s: %s", at, r.Found, why)
						return
					}
					t.Errorf("%s (%s): %s", at, r.Mark, r.Found)
				}
			}))
			for at := range kind.known {
				require.Contains(t, found, at, "it is as specified now: take it off the list")
			}
			require.Greater(t, passed, 140)
			t.Logf("%d passed, %d deviate; the sample was started %d times", passed, len(found), s.starts)
		})
	}
}
