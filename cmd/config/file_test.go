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

// TestLists: YAML reads names with values as mappings in some places and as words in
// others. What is meant is the same.
func TestLists(t *testing.T) {
	for _, weights := range []string{
		"[kernel:50, space-0x1a000:200]", `"kernel:50,space-0x1a000:200"`, `["kernel:50", "space-0x1a000:200"]`, "{kernel: 50, space-0x1a000: 200}", "[kernel: 50, space-0x1a000: 200]",
	} {
		for _, gpu := range []string{
			"gpus: [{name: a, socket: a.sock, vram: 64MiB, processes: {group: space, policy: weighted, weights: %s}}]\n",
			"gpus:\n  - name: a\n    socket: a.sock\n    vram: 64MiB\n    processes:\n      policy: weighted\n      weights: %s\n",
		} {
			l, err := join(t, "scheduler: {policy: credit}\n"+fmt.Sprintf(gpu, weights))
			require.NoError(t, err, weights)
			require.Equal(t, Weights{"kernel": 50, "space-0x1a000": 200}, l.Config.GPUs[0].Processes.Weights, weights)
		}
	}
	for _, weights := range []string{"{kernel: [50]}", "{kernel: {a: 50}}"} {
		_, err := join(t, "scheduler: {policy: credit}\ngpus: [{name: a, socket: a.sock, vram: 64MiB, processes: {policy: weighted, weights: "+weights+"}}]\n")
		require.ErrorContains(t, err, "gpus[0].processes.weights: ", weights)
	}
}
