package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

func TestExploreVirtual(t *testing.T) {
	k := os.Getenv("KV")
	if k == "" {
		t.Skip()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	s, err := stand.NewShared(soft.Config{VRAM: 1 << 30}, 2, 256<<20)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	vm, err := lab.Start(ctx, lab.Config{Kernel: k, Sockets: []string{s.GPUs[0].Socket}})
	require.NoError(t, err)
	defer func() {
		st := s.GPUs[0].Guest.Stats()
		t.Logf("binds %d unbinds %d invalidates %d rebuilds %d bells %d events %d faults %d timeouts %d", st.Binds.Load(), st.Unbinds.Load(), st.Invalidates.Load(), st.Rebuilds.Load(), st.Bells.Load(), st.EngineEvents.Load(), st.MMUFaults.Load(), st.CardTimeout.Load())
		if t.Failed() {
			t.Log(vm.Diagnosis())
		}
		vm.Close()
	}()
	require.NoError(t, vm.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil))
	for _, cmd := range strings.Split(os.Getenv("CMDS"), ";") {
		name, args, _ := strings.Cut(cmd, " ")
		var a any
		if args != "" {
			a = json.RawMessage(args)
		}
		var r json.RawMessage
		t0 := time.Now()
		err := vm.Agent().Call(ctx, name, a, &r)
		out := string(r)
		t.Logf("%s: %v err=%v\n%.1200s", cmd, time.Since(t0).Round(time.Millisecond), err, out)
	}
	w, err := vm.KernelLog(ctx)
	require.NoError(t, err)
	for _, l := range w {
		if strings.Contains(l.Text, "nouveau") || l.Level <= 4 {
			t.Log(l.String())
		}
	}
}
