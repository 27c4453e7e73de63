package fetch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files are found plain or compressed, with the targets of links, and nothing else comes along.
func TestFirmwareFiles(t *testing.T) {
	f := Firmware{Root: filepath.Join(t.TempDir(), "root"), Packages: []Package{{firmwarePackage, "1"}}}
	for _, name := range []string{"nvidia/ga102/gsp/gsp-1.bin.xz", "nvidia/gh100/gsp/fmc-1.bin", "nvidia/gh100/gsp/fmc-2.bin", "../secret"} {
		at := filepath.Join(f.Root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(name), 0o644))
	}
	link := func(name, target string) {
		require.NoError(t, os.Symlink(target, filepath.Join(f.Root, "nvidia/gh100/gsp", name)))
	}
	link("gsp-1.bin.xz", "../../ga102/gsp/gsp-1.bin.xz")
	link("out.bin", "../../../../secret")
	got, err := f.Files([]string{"nvidia/gh100/gsp/gsp-1.bin", "nvidia/gh100/gsp/fmc-1.bin"})
	require.NoError(t, err)
	require.Equal(t, []string{"nvidia/ga102/gsp/gsp-1.bin.xz", "nvidia/gh100/gsp/fmc-1.bin", "nvidia/gh100/gsp/gsp-1.bin.xz"}, got)
	_, err = f.Files([]string{"nvidia/gh100/gsp/gsp-2.bin"})
	require.ErrorContains(t, err, "firmware-nvidia-graphics 1 has no nvidia/gh100/gsp/gsp-2.bin")
	_, err = f.Files([]string{"nvidia/gh100/gsp/out.bin"})
	require.ErrorContains(t, err, "outside of")
}
