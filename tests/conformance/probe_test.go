package conformance

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/probe"
)

// probed probes a server. The result passes through JSON: the text made from that is the
// same.
func probed(t *testing.T, path string) *probe.Device {
	t.Helper()
	d, err := probe.Probe(t.Context(), path, time.Minute)
	// A program that was started just now may not listen yet.
	for began := time.Now(); (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)) && time.Since(began) < time.Minute; {
		time.Sleep(5 * time.Millisecond)
		d, err = probe.Probe(t.Context(), path, time.Minute)
	}
	require.NoError(t, err)
	doc, err := json.Marshal(d)
	require.NoError(t, err)
	var back probe.Device
	require.NoError(t, json.Unmarshal(doc, &back))
	require.Equal(t, d.Text(), back.Text())
	return d
}

// TestProbeOfEverything: both transports' servers look the same to the probe, but for what the
// library lacks.
func TestProbeOfEverything(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		dev, err := newEverything()
		require.NoError(t, err)
		t.Cleanup(dev.close)
		tr, path := serveAt(t, by, dev)
		d := probed(t, path)
		require.Equal(t, "0.0", d.Version)
		areas, counts := dev.Regions()[1].Areas, []int{1, 0, 4, 1, 1}
		if _, ok := tr.(*vfiouser.Server); !ok {
			// It offers one part of a region, and cannot distinguish ERR and REQ from
			// vector 0.
			areas, counts = areas[:1], []int{1, 0, 4, 0, 0}
		}
		require.Equal(t, []probe.Region{
			{Index: 0, Name: "BAR0", Size: 0x1000, Read: true, Write: true},
			{Index: 1, Name: "BAR1", Size: sharedSize, Read: true, Write: true, Mmap: true, Areas: areas, Files: 1},
			{Index: 7, Name: "configuration", Size: 4096, Read: true, Write: true},
		}, d.Regions)
		for i, q := range d.IRQs {
			require.EqualValues(t, counts[i], q.Count, q.Name)
		}
		require.EqualValues(t, 0x10de, d.Config.Vendor)
	})
}
