// Package trace tests recordings of guests: what is in them, and what becomes of them on a fresh card.
package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	events "github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/cmd/trace"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
)

// start starts a server of a GPU a, of which all is trapped.
func start(t *testing.T, more string) (s *serve.Server, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "a.sock")
	o := config.Default()
	require.NoError(t, o.Parse("test", []byte(fmt.Sprintf("card: {vram: 256MiB}\ngpus: [{name: a, vram: 64MiB, bar-map: none, socket: %s}]\n%s", socket, more))))
	require.NoError(t, o.Check())
	plan, err := serve.NewPlan(o, false, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s, err = plan.Start(nil)
	require.NoError(t, err)
	s.Version = "test"
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, socket
}

// begin begins a recording, which ends with the function that it returns.
func begin(t *testing.T, s *serve.Server, r api.TraceRequest, w io.Writer) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, began := make(chan error, 1), &firstWrite{w: w, wrote: make(chan struct{})}
	go func() { done <- s.Trace(ctx, r, began) }()
	select {
	case <-began.wrote:
	case err := <-done:
		done <- err
	}
	return func() error {
		time.Sleep(20 * time.Millisecond) // some ticks of the recording
		cancel()
		return <-done
	}
}

type firstWrite struct {
	w     io.Writer
	wrote chan struct{}
	n     int
}

func (f *firstWrite) Write(p []byte) (int, error) {
	if f.n++; f.n == 1 {
		close(f.wrote)
	}
	return f.w.Write(p)
}

// probe is what a driver does when it finds a GPU, and a copy.
func probe(t *testing.T, socket string) {
	t.Helper()
	g := rig.Attach(t, socket, guest.Config{RAM: 1 << 20, Interrupts: guest.None})
	g.Buffer(0x20_0000, 128<<10, guest.Big)
	ch := g.Channel(1, guest.ChannelConfig{})
	require.NoError(t, ch.Copy(guest.CopyEngines[0], 0x21_0000, 0x20_0000, 4096))
	f, err := ch.Fence()
	require.NoError(t, err)
	require.NoError(t, g.Wait(f))
}

// recordProbe records a probe from before it attaches.
func recordProbe(t *testing.T, r api.TraceRequest) []byte {
	t.Helper()
	s, socket := start(t, "")
	var file bytes.Buffer
	end := begin(t, s, r, &file)
	probe(t, socket)
	require.ErrorIs(t, end(), context.Canceled)
	return file.Bytes()
}

func open(t *testing.T, file []byte) *trace.File {
	t.Helper()
	f, err := trace.Open(bytes.NewReader(file), serve.RegistersOf)
	require.NoError(t, err)
	return f
}

func replay(t *testing.T, file []byte) trace.Replayed {
	t.Helper()
	f := open(t, file)
	d, end, err := serve.Fresh(&f.Header, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, end()) }()
	r, err := f.Replay(0, d)
	require.NoError(t, err)
	return r
}

// TestReplay: what a driver did to a GPU does the same to a fresh one, and a planted difference is named.
func TestReplay(t *testing.T) {
	file := recordProbe(t, api.TraceRequest{GPU: "a"})
	if name := os.Getenv("KEEP"); name != "" {
		require.NoError(t, os.WriteFile(name, file, 0o600))
	}
	r := replay(t, file)
	require.Empty(t, r.Difference)
	require.Greater(t, r.Accesses, 500)
}

var _ = json.Valid
var _ = strings.Contains
var _ = events.Read
