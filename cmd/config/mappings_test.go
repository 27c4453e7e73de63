package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClientMappings: all clients together never take more mappings than are theirs, whatever
// the system has; who says a number that does not fit is told what does.
func TestClientMappings(t *testing.T) {
	for _, c := range []struct {
		file   string
		system int
		alone  bool
		want   int
		err    string
	}{
		{"", 65530, false, 128, ""},
		{"", 65530, true, 128, ""},
		{"", 32 * 8 * 100, false, 100, ""},
		{"", 32 * 8 * 8, false, 8, ""},
		{"", 32*8*8 - 1, false, 0, "default of server.max-dma-mappings: 8: too many mappings of this process for each of 32 guests (default of limits.guests): " +
			"the memory of all clients may take 255, an eighth of the 2047 that the system lets it have; lower limits.guests, or raise the sysctl vm.max_map_count to 2048"},
		{"limits: {guests: 2}\n", 2047, false, 127, ""},
		{"server: {max-dma-mappings: 255}\n", 65530, false, 255, ""},
		{"server: {max-dma-mappings: 256}\n", 65530, false, 0, "f.yaml:1: server.max-dma-mappings: 256: too many mappings of this process for each of 32 guests (default of limits.guests): " +
			"the memory of all clients may take 8191, an eighth of the 65530 that the system lets it have; say 255 or less, lower limits.guests, or raise the sysctl vm.max_map_count to 65536"},
		{"server: {max-dma-mappings: 256}\nlimits: {guests: 31}\n", 65530, false, 256, ""},
		{"server: {max-dma-mappings: 8191}\n", 65530, true, 8191, ""},
		{"server: {max-dma-mappings: 8192}\n", 65530, true, 0, "f.yaml:1: server.max-dma-mappings: 8192: too many mappings of this process: " +
			"the memory of all clients may take 8191, an eighth of the 65530 that the system lets it have; say 8191 or less, or raise the sysctl vm.max_map_count to 65536"},
		{"server: {max-dma-mappings: 128}\n", 32 * 8 * 100, false, 0, "say 100 or less"}, // the default, said
	} {
		file, err := Parse("f.yaml", []byte(c.file))
		require.NoError(t, err)
		l, err := Join(Defaults(), file)
		require.NoError(t, err)
		got, err := l.ClientMappings(c.system, c.alone)
		require.Equal(t, c.want, got, c)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		guests := l.Config.Limits.Guests
		if c.alone {
			guests = 1
		}
		require.LessOrEqual(t, got*guests, c.system/8)
	}
}
