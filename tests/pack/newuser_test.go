package pack

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestNewUser is what a new user does with the package: look at its units, start the server, attach two guests by the
// arguments that umbra gpu attach prints, change a weight while they work, and watch with Prometheus.
func TestNewUser(t *testing.T) {
	scale.ReleaseOnly(t)
	work, root := unpacked(t)
	units := filepath.Join(root, "usr/lib/systemd/system")
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		for _, unit := range []string{"umbra.service", "umbra-control.socket", "umbra-gpu@.socket"} {
			verify := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", filepath.Join(units, unit))
			text, _ := verify.CombinedOutput()
			for line := range strings.Lines(string(text)) {
				ours := strings.Contains(line, "umbra") && !strings.Contains(line, "/usr/bin/umbra is not executable")
				require.False(t, ours, "%s", text)
			}
		}
	}
	config, address := configured(t, work, root)
	umbra := filepath.Join(root, "usr/bin/umbra")
	t.Setenv("UMBRA_CONTROL", filepath.Join(work, "control.sock"))
	if exec.CommandContext(t.Context(), "systemd-run", "--user", "--wait", "true").Run() == nil {
		unit := "umbra-test-" + filepath.Base(filepath.Dir(work))
		output(t, "systemd-run", "--user", "--collect", "--property=Type=notify", "--property=WatchdogSec=30", "--unit="+unit, umbra, "serve", "--config", config)
		t.Cleanup(func() { _ = exec.Command("systemctl", "--user", "stop", unit).Run() })
	} else {
		started(t, umbra, "serve", "--config", config)
	}
	k := api.NewClient(filepath.Join(work, "control.sock"))
	require.Eventually(t, func() bool { _, err := k.Status(t.Context()); return err == nil }, patience, 10*time.Millisecond)
	output(t, umbra, "gpu", "add", "name=lap", "vram=256MiB", "socket="+filepath.Join(work, "lap.sock"))

	names := []string{"desk", "lap"}
	var guests []*lab.VM
	for _, name := range names {
		var a api.Attachment
		require.NoError(t, json.Unmarshal([]byte(output(t, umbra, "gpu", "attach", name, "--format", "json")), &a))
		var args []string
		for _, arg := range a.QEMU { // the machine of the lab has a memory of its own, which this one replaces
			args = append(args, strings.NewReplacer("id=mem", "id=printed", "memory-backend=mem", "memory-backend=printed", "2G", "1G").Replace(arg))
		}
		vm, err := lab.Start(t.Context(), lab.Config{Accel: lab.AccelTCG, QEMUArgs: args, Progress: t.Output()})
		require.NoError(t, err)
		t.Cleanup(func() { vm.Close() })
		require.NoError(t, vm.Agent().Call(t.Context(), proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil), vm.Diagnosis())
		guests = append(guests, vm)
	}
	programs, err := (&fetch.Cache{Dir: cache(t), Progress: t.Output()}).Prometheus(t.Context())
	require.NoError(t, err)
	asked := prometheus(t, programs, work, filepath.Join(root, "usr/share/umbra/prometheus/umbra.rules.yml"), address)
	require.Contains(t, output(t, umbra, "gpu", "set", "lap", "weight=300"), "GPU lap: weight=300 (was 100)")
	for _, vm := range guests {
		var moved proto.BOMovesResult
		require.NoError(t, vm.Agent().Call(t.Context(), proto.CmdBOMoves, proto.BOMovesArgs{}, &moved), vm.Diagnosis())
	}
	for name, want := range map[string]string{"desk": "100", "lap": "300"} {
		require.Eventually(t, func() bool {
			return query(t.Context(), asked, `umbra_gpu_weight{gpu="`+name+`"}`) == want && query(t.Context(), asked, `umbra_gpu_attached{gpu="`+name+`"}`) == "1"
		}, patience, 100*time.Millisecond, name)
	}
	require.Equal(t, "1", query(t.Context(), asked, `count(umbra_gpu_moved_bytes_total{gpu="lap"} > 0)`))
	require.Equal(t, "", query(t.Context(), asked, "ALERTS"))
	require.Contains(t, output(t, umbra, "config", "save", "-"), "weight: 300")
	require.Contains(t, output(t, umbra, "top", "--looks", "1"), "lap")
}
