package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReaderGone: whose standard output nobody reads any more, as of a pipe whose reader the
// same Ctrl-C ended, takes its sockets away all the same, and says that its report is lost.
func TestReaderGone(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	var stderr bytes.Buffer
	c := &exec.Cmd{Path: exe, Args: []string{"umbra", "serve", "--json", "--control", "c.sock", "--gpu", "name=a,socket=a.sock,vram=64MiB"}, Stderr: &stderr}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer c.Process.Kill()
	_, err = bufio.NewReader(out).ReadString('\n') // it serves
	require.NoError(t, err)
	require.FileExists(t, "a.sock")
	require.NoError(t, out.Close())
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Error(t, c.Wait())
	require.Equal(t, exitFailed, c.ProcessState.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), syscall.EPIPE.Error())
	left, err := filepath.Glob("*")
	require.NoError(t, err)
	require.Empty(t, left)
}
