package hostcards

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// noDriver is a driver whose files do not open.
type noDriver struct{ release string }

func (d noDriver) Open(name string) (nvrm.File, error) { return nil, errors.New("no " + name) }

func (d noDriver) Release() (string, error) {
	if d.release == "" {
		return "", &nvrm.Missing{What: "the NVIDIA driver is not loaded", Command: "modprobe nvidia"}
	}
	return d.release, nil
}

// TestProbe: each card of a machine is listed with what keeps it from being served, and each thing that is
// missing with the command that mends it.
func TestProbe(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}
	for i, c := range []struct {
		vendor, class, device, driver string
		minor                         int
	}{
		{"0x10de", "0x030200", "0x2335", "nvidia", 0}, {"0x10de", "0x030200", "0x2335", "nvidia", 1}, {"0x10de", "0x030200", "0x06d8", "vfio-pci", -1},
		{"0x10de", "0x030000", "0x20b0", "nvidia", 2}, {"0x10de", "0x030200", "0x2331", "", -1}, {"0x10de", "0x040300", "0x2335", "", -1}, {"0x8086", "0x030000", "0x2335", "", -1},
	} {
		at := fmt.Sprintf("0000:0%d:00.0", i)
		dir := "sys/bus/pci/devices/" + at + "/"
		write(dir+"vendor", c.vendor+"\n", 0o644)
		write(dir+"class", c.class+"\n", 0o644)
		write(dir+"device", c.device+"\n", 0o644)
		if c.driver != "" {
			require.NoError(t, os.Symlink("../drivers/"+c.driver, filepath.Join(root, dir, "driver")))
		}
		if c.minor >= 0 {
			write("proc/driver/nvidia/gpus/"+at+"/information", fmt.Sprintf("Model: \t NVIDIA %d\nDevice Minor: \t %d\n", i, c.minor), 0o644)
		}
	}
	write("dev/nvidiactl", "", 0o666)
	write("dev/nvidia0", "", 0o660)
	write("dev/nvidia2", "", 0o600)
	write("dev/nvidia7", "", 0o666)

	_, err := Machine{Root: root, RM: noDriver{}, User: "nobody-at-all"}.Probe()
	require.ErrorContains(t, err, "nobody-at-all")
	r, err := Machine{Root: root, RM: noDriver{"580.1.1"}, User: "nobody"}.Probe()
	require.NoError(t, err)
	require.Equal(t, &Driver{"580.1.1", false}, r.Driver)
	require.Equal(t, []Card{
		{Index: 0, PCI: "0000:00:00.0", Name: "NVIDIA 0", Generation: "Hopper", Why: "no nvidiactl"},
		{Index: 1, PCI: "0000:01:00.0", Name: "NVIDIA 1", Generation: "Hopper", Why: "no nvidiactl"},
		{Index: -1, PCI: "0000:02:00.0", Name: "NVIDIA 06d8", Generation: "Fermi", Why: "a Fermi behind VFIO: not yet"},
		{Index: 2, PCI: "0000:03:00.0", Name: "NVIDIA 3", Generation: "Ampere", Why: "only a Hopper can be served"},
		{Index: -1, PCI: "0000:04:00.0", Name: "NVIDIA 2331", Generation: "Hopper", Why: "the NVIDIA driver does not have it"},
		{Index: 7, Generation: "unknown", Why: "no nvidiactl"},
	}, r.Cards)
	require.Equal(t, []Missing{
		{"user nobody may not read and write /dev/nvidia0", "chmod 666 /dev/nvidia0"},
		{"there is no /dev/nvidia1", "nvidia-modprobe -c 1"},
	}, r.Missing)
	require.Equal(t, File{"/dev/nvidiactl", "-rw-rw-rw-", "nobody", true}, r.Files[0])

	r, err = Machine{Root: root, RM: noDriver{}, User: "nobody"}.Probe()
	require.NoError(t, err)
	require.Equal(t, Missing{"the NVIDIA driver is not loaded", "modprobe nvidia"}, r.Missing[0])
	r, err = Machine{Root: t.TempDir(), RM: noDriver{}, User: "nobody"}.Probe()
	require.NoError(t, err)
	require.Equal(t, Report{Software: r.Software, Cards: []Card{}, Files: []File{}, Missing: []Missing{}}, r)
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		mode        os.FileMode
		user, group string
		want        bool
	}{
		{0o666, "5", "5", true}, {0o606, "5", "5", true}, {0o660, "5", "5", false}, {0o664, "5", "5", false}, {0o662, "5", "5", false},
		{0o660, "5", "2", true}, {0o606, "5", "2", false}, {0o600, "1", "5", true}, {0o066, "1", "2", false}, {0, "0", "5", true},
	} {
		require.Equal(t, c.want, allowed(c.mode, "1", "2", c.user, []string{"9", c.group}), c)
	}
}
