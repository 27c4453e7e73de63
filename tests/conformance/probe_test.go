package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/probe"
)

// probed probes a server. The result passes through JSON: the text made from that is the
// same.
func probed(t *testing.T, path string) *probe.Device {
	t.Helper()
	d, err := probe.Probe(t.Context(), path, time.Minute)
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
		dev := newEverything(t)
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
			{Index: 1, Name: "BAR1", Size: sharedSize, Read: true, Write: true, Mmap: true, Areas: areas},
			{Index: 7, Name: "configuration", Size: 4096, Read: true, Write: true},
		}, d.Regions)
		for i, q := range d.IRQs {
			require.EqualValues(t, counts[i], q.Count, q.Name)
		}
		require.EqualValues(t, 0x10de, d.Config.Vendor)
	})
}

type small struct{ *everything }

func (d small) Regions() []vfiouser.Region {
	r := d.everything.Regions()
	r[vfiouser.RegionConfig].Size = 256
	return r
}

// conversation is what a server says to the probe.
func conversation(t *testing.T) (said []byte) {
	_, server := serveAt(t, serve.Native, small{newEverything(t)})
	replies := make(chan []byte, 100)
	r := newRelay(t, &plant{fault: func(_ client.Message, reply []byte) []byte {
		replies <- reply
		return reply
	}}, server)
	_, err := probe.Probe(t.Context(), r.l.Addr().String(), time.Minute)
	require.NoError(t, err)
	for len(replies) > 0 {
		said = append(said, <-replies...)
	}
	require.Greater(t, len(said), 500)
	return said
}

// against probes a server that says what it says, whatever it is asked.
func against(l *net.UnixListener, said []byte) (*probe.Device, error) {
	var server sync.WaitGroup
	defer server.Wait()
	server.Go(func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write(said)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	return probe.Probe(context.Background(), l.Addr().String(), time.Minute)
}

func listener(t *testing.T) *net.UnixListener {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// TestNonsenseAnywhere: for any change in a conversation, or its end anywhere, the probe ends.
func TestNonsenseAnywhere(t *testing.T) {
	said, l := conversation(t), listener(t)
	_, err := against(l, said)
	require.NoError(t, err)
	complaints := 0
	rapid.Check(t, func(t *rapid.T) {
		p := bytes.Clone(said[:rapid.IntRange(1, len(said)).Draw(t, "length")])
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
			p[at] = rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff, p[at] + 1}).Draw(t, "byte")
		}
		if d, err := against(l, p); err != nil {
			complaints++
		} else {
			_ = d.Text()
		}
	})
	require.Positive(t, complaints)
}
