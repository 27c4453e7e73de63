package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/cmd/serve"
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

func conversation(t *testing.T) []byte {
	_, path := serveAt(t, serve.Native, small{newEverything(t)})
	l := listener(t)
	received := make(chan []byte, 1)
	go func() {
		var said bytes.Buffer
		defer func() { received <- said.Bytes() }()
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		server, err := net.Dial("unix", path)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, c)
			server.Close()
		}()
		_, _ = io.Copy(io.MultiWriter(c, &said), server)
	}()
	_, err := probe.Probe(t.Context(), l.Addr().String(), time.Minute)
	require.NoError(t, err)
	said := <-received
	require.Greater(t, len(said), 500)
	return said
}

func replay(l *net.UnixListener, said []byte) {
	c, err := l.AcceptUnix()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write(said)
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

func against(t require.TestingT, l *net.UnixListener, said []byte) (*probe.Device, error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		replay(l, said)
	}()
	d, err := probe.Probe(context.Background(), l.Addr().String(), time.Minute)
	<-done
	return d, err
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
	_, err := against(t, l, said)
	require.NoError(t, err)
	complaints := 0
	rapid.Check(t, func(t *rapid.T) {
		p := bytes.Clone(said[:rapid.IntRange(1, len(said)).Draw(t, "length")])
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
			p[at] = rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff, p[at] + 1}).Draw(t, "byte")
		}
		if d, err := against(t, l, p); err != nil {
			complaints++
		} else {
			_ = d.Text()
		}
	})
	require.Positive(t, complaints)
}
