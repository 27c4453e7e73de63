package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLongValues: what a message shortens, an option has whole, in a file as in a flag.
func TestLongValues(t *testing.T) {
	long := strings.Repeat("a-folder/", 12)
	l, err := join(t, fmt.Sprintf("control: %sc.sock\ncard: {vram: 1GiB}\ngpus: [{name: a, socket: %[1]sa.sock, vram: 64MiB}, {name: b, socket: \"%[1]sb.sock\", vram: 64MiB}]\n", long))
	require.NoError(t, err)
	require.Equal(t, long+"c.sock", l.Config.Control)
	require.Equal(t, long+"a.sock", l.Config.GPUs[0].Socket)
	require.Equal(t, long+"b.sock", l.Config.GPUs[1].Socket)

	_, err = join(t, "gpus: "+long+"\n")
	require.ErrorContains(t, err, long[:60]+"...: not a list")
}
