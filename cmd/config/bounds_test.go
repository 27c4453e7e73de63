package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// TestBoundsAreOfThoseWhoKeepThem: a tag cannot name a constant, so what it repeats of
// those is held against them here.
func TestBoundsAreOfThoseWhoKeepThem(t *testing.T) {
	tags := make(map[string]option)
	for _, o := range options(new(Config)) {
		tags[o.path] = o
	}
	for _, o := range options(new(GPU)) {
		tags["gpu."+o.path] = o
	}
	for _, c := range []struct {
		path, tag string
		want      uint64
	}{
		{"card.vram", "min", soft.MinVRAM},
		{"card.vram", "max", soft.MaxVRAM},
		{"gpu.vram", "min", uint64(leastGPU)},
		{"gpu.vram", "max", soft.MaxVRAM},
		{"gpu.channels", "max", gf100.Channels},
		{"gpu.guaranteed", "max", gf100.Channels},
		{"limits.guests", "max", aggregator.MaxGuests},
		{"limits.guests", "def", aggregator.MaxGuests},
		{"server.max-dma-mappings", "min", leastMappings},
	} {
		o, ok := tags[c.path]
		require.True(t, ok, c.path)
		n, ok := o.limit(c.tag)
		require.True(t, ok, "%s has no %s", c.path, c.tag)
		require.Equal(t, c.want, n, "%s of %s", c.tag, c.path)
	}
	unmap := tags["limits.unmap-timeout"]
	n, _ := unmap.limit("max")
	require.Less(t, time.Duration(n), 5*time.Second, "QEMU waits no longer")
}
