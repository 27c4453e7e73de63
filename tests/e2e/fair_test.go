package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// The scheduler's effect on real guests is observed as a user would: on a separate server
// with a configuration file, with stock kernels, through the ledger of the control socket.

const fairConfig = `
control: control.sock
card: {vram: 1GiB}
scheduler: {policy: credit, watchdog: {grace: 500ms}}
limits: {request: 1s}
gpus:
  - {name: a, socket: a.sock, vram: 256MiB}
  - {name: b, socket: b.sock, vram: 256MiB}
`

// fairNames are the guests'.
var fairNames = []string{"a", "b"}

// serveFair starts the server as a process of its own, which ends with the test.
func serveFair(t *testing.T) *testserver.Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "umbra-") // t.TempDir's paths are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	bin, err := testserver.BuildUmbra(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, testserver.ConfigFile), []byte(fairConfig), 0o600))
	s, err := testserver.StartProcess(t.Context(), bin, dir)
	require.NoError(t, err)
	t.Cleanup(func() {
		defer s.Kill()
		if t.Failed() {
			t.Logf("the server said: %s", s.Log())
		}
		require.NoError(t, s.Stop(context.WithoutCancel(t.Context())), s.Log())
	})
	return s
}

// fair is two guests and their server.
type fair struct {
	*api.Client
	t    *testing.T
	ctx  context.Context
	beds []*fixture
}

// books is the server's ledger at a time.
type books struct {
	at   time.Time
	busy []time.Duration
}

func (f *fair) look() (b books) {
	f.t.Helper()
	s, err := f.Status(f.ctx)
	require.NoError(f.t, err)
	b.at = time.Now()
	require.Len(f.t, s.GPUs, len(fairNames))
	for i, name := range fairNames {
		require.Equal(f.t, name, s.GPUs[i].Name)
		require.NotNil(f.t, s.GPUs[i].CardTime)
		b.busy = append(b.busy, api.Total(s.GPUs[i].CardTime.Engines).Busy)
	}
	return b
}
