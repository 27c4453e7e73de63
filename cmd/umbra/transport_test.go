package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// TestLibraryTransport: umbra serve with the library's transport serves, and lists what that
// lacks as text and as JSON. In a program without the library it says how to build one.
func TestLibraryTransport(t *testing.T) {
	for _, mode := range []string{"text", "json"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			sock := filepath.Join(dir, "s")
			args := []string{"serve", "--socket", sock, "--vram", "128MiB", "--transport", serve.TransportLibrary}
			if mode == "json" {
				args = append(args, "--json")
			}
			var stderr bytes.Buffer
			if !libvfiouser.Built {
				require.Equal(t, exitUsage, doMain(t.Context(), args, new(bytes.Buffer), &stderr))
				require.Contains(t, stderr.String(), "make libvfio-user")
				require.NoFileExists(t, sock)
				return
			}
			var stdout bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			code := make(chan int, 1)
			go func() { code <- doMain(ctx, args, &stdout, &stderr) }()
			require.Eventually(t, func() bool { _, err := os.Stat(sock); return err == nil }, patience, time.Millisecond)
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
			cancel()
			require.Equal(t, exitOK, <-code, stderr.String())
			if mode == "json" {
				var a struct{ Lacks []string }
				first, _, _ := strings.Cut(stdout.String(), "\n")
				require.NoError(t, json.Unmarshal([]byte(first), &a))
				require.Equal(t, libvfiouser.Lacks(), a.Lacks)
				return
			}
			require.Contains(t, stdout.String(), "Served by libvfio-user, which lacks what the native transport has:\n")
			for _, l := range libvfiouser.Lacks() {
				require.Contains(t, stdout.String(), l)
			}
		})
	}
}
