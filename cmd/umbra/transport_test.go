package main

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// TestLibraryTransport: umbra serve with the library's transport serves, and lists what that
// lacks. In a program without the library it says how to build one.
func TestLibraryTransport(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "s")
	args := []string{"--socket", sock, "--vram", "128MiB", "--transport", serve.TransportLibrary}
	if !libvfiouser.Built {
		var stderr bytes.Buffer
		require.Equal(t, exitUsage, doMain(t.Context(), append([]string{"serve"}, args...), new(bytes.Buffer), &stderr))
		require.Contains(t, stderr.String(), "make libvfio-user")
		require.NoFileExists(t, sock)
		return
	}
	server := serveHere(t, args...)
	var c *client.Client
	require.Eventually(t, func() (ok bool) {
		var err error
		c, err = client.Dial(sock, nil)
		return err == nil
	}, patience, 5*time.Millisecond)
	boot0, err := c.Read32(vfiouser.RegionBAR0, 0)
	require.NoError(t, err)
	require.EqualValues(t, 0x0c0, boot0>>20&0x1ff)
	require.NoError(t, c.Close())
	server.end()
	require.Contains(t, server.out.String(), "Served by libvfio-user, which lacks what the native transport has:\n")
	for _, l := range libvfiouser.Lacks() {
		require.Contains(t, server.out.String(), l)
	}
}
