package pack

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// administrator is the unit of testdata/administrator.sh. It talks to the console, and ends the machine.
const administrator = `[Unit]
After=basic.target
FailureAction=poweroff-force
SuccessAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/usr/bin/sh /administrator.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
`

// assemble makes the machine's root folder of Debian, Prometheus and QEMU.
const assemble = `cp -a "$0" "$1"
cp "$2"/prometheus "$2"/promtool "$1"/usr/bin
cp testdata/administrator.sh "$1"
mkdir -p "$1"/opt/qemu "$1"/var/lib/dpkg/info "$1"/var/lib/dpkg/updates
touch "$1"/var/lib/dpkg/status
cd "$3"
cp -a --parents -t "$1"/opt/qemu "${@:4}"`

// TestSystemd installs the package on a Debian with systemd as its init, and does with the units what an administrator
// does. Two QEMUs attach there; they get no further than their firmware in a machine that is emulated itself.
func TestSystemd(t *testing.T) {
	scale.ReleaseOnly(t)
	labtest.Need(t)
	work, _ := unpacked(t)
	c := &fetch.Cache{Dir: cache(t), Progress: t.Output()}
	debian, err := c.Systemd(t.Context())
	require.NoError(t, err)
	programs, err := c.Prometheus(t.Context())
	require.NoError(t, err)
	assets, err := lab.Ensure(t.Context(), t.Output(), lab.Config{Kernel: "6.12"})
	require.NoError(t, err)

	files, err := assets[0].QEMU.Files()
	require.NoError(t, err)
	root := filepath.Join(work, "debian")
	output(t, "bash", append([]string{"-ec", assemble, debian, root, programs, filepath.Join(cache(t), "qemu/root")}, files...)...)
	for name, text := range map[string]string{
		"etc/passwd":     "root:x:0:0::/root:/usr/bin/sh\nann:x:1000:1000::/tmp:/usr/bin/sh\n",
		"etc/group":      "root:x:0:\nann:x:1000:\n",
		"etc/machine-id": "0123456789abcdef0123456789abcdef\n",
		"etc/systemd/system/administrator.service": administrator,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	require.NoError(t, os.Rename(filepath.Join(work, "umbra_0.1.2_amd64.deb"), filepath.Join(root, "umbra.deb")))
	require.NoError(t, os.Symlink("usr/lib/systemd/systemd", filepath.Join(root, "init")))
	initramfs := filepath.Join(work, "initramfs")
	require.NoError(t, image.Folder(root, initramfs))

	vm := labtest.Start(t, lab.Config{Kernel: "6.12", Image: initramfs, Memory: 3072, NoWait: true,
		Append: []string{"systemd.unit=administrator.service", "systemd.firstboot=0", "systemd.condition_needs_update=0", "systemd.default_timeout_start_sec=600", "audit=0"}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	require.NoError(t, vm.Wait(ctx))
	_, _, err = vm.WaitConsole(ctx, "+ : all done", 0)
	require.NoError(t, err, vm.Diagnosis())
}
