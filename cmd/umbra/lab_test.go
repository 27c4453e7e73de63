package main

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// TestLabRunEndsEndlessProgram: the server of umbra lab run ends a program that does not end, after limits.request, and says so.
func TestLabRunEndsEndlessProgram(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(fetch.EnvLLVM, self) // nothing is fetched, and nothing loads it
	socket := filepath.Join(t.TempDir(), "gpu.sock")
	s, err := serveGPU(t.Context(), lab.ChipGF100, socket, output{stdout: io.Discard, stderr: t.Output()})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Set("gpu", api.SetRequest{Options: "limits.request=200ms"})
	require.NoError(t, err)

	g, err := guest.Attach(t.Context(), socket, guest.Config{Timeout: time.Minute})
	require.NoError(t, err)
	defer g.Close()
	space, err := g.NewSpace()
	require.NoError(t, err)
	const at = 0x1000_0000
	code, err := isa.Assemble("bra 0x0")
	require.NoError(t, err)
	b, err := g.AllocVRAM(4096)
	require.NoError(t, err)
	require.NoError(t, b.Write(0, binary.LittleEndian.AppendUint64(nil, code[0])))
	require.NoError(t, space.Map(at, b, guest.Small))
	ch, err := g.NewChannel(1, space)
	require.NoError(t, err)
	require.NoError(t, ch.Submit(new(guest.Push).SetObject(push.Compute).Words...))
	require.NoError(t, ch.Submit(new(guest.Push).Launch(push.Compute.Subchan, push.Launch{Code: at, Blocks: 1, Threads: 32, Constants: at}).Words...))
	var stopped *guest.ChannelError
	require.ErrorAs(t, ch.Finish(), &stopped)
	r, err := s.Report()
	require.NoError(t, err)
	require.Contains(t, found(&r.GPUs[0]), "umbra: 1 request ran longer than limits.request, which ended its channel\n")
	require.ErrorContains(t, outcome(new(proto.RunResult), &r.GPUs[0], io.Discard), "ended with status 0, although")
	require.Equal(t, ended(3), outcome(&proto.RunResult{Exit: 3}, &r.GPUs[0], io.Discard))
	require.NoError(t, outcome(new(proto.RunResult), new(api.GPUReport), io.Discard))
}
