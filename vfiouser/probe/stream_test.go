package probe_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/probe"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// device has a BAR of which two parts can be mapped, and a configuration space.
type device struct {
	file   *os.File
	config [256]byte
}

func (d *device) Regions() []vfiouser.Region {
	r := make([]vfiouser.Region, vfiouser.NumRegions)
	r[vfiouser.RegionBAR0] = vfiouser.Region{
		Size: 0x10000, Flags: vfiouser.RegionRead | vfiouser.RegionMmap, File: d.file,
		Areas: []vfiouser.SparseArea{{Offset: 0x1000, Size: 0x1000}, {Offset: 0x4000, Size: 0x2000}},
	}
	r[vfiouser.RegionConfig] = vfiouser.Region{Size: 256, Flags: vfiouser.RegionRead | vfiouser.RegionWrite}
	return r
}
func (d *device) IRQs() []vfiouser.IRQ {
	return []vfiouser.IRQ{{Count: 1, Flags: vfiouser.IRQEventFD}}
}
func (d *device) ReadRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionConfig {
		copy(p, d.config[off:])
	}
	return nil
}
func (d *device) WriteRegion(int, uint64, []byte) error { return nil }
func (d *device) Reset() error                          { return nil }
func (d *device) Attached(*vfiouser.Host)               {}
func (d *device) Detached()                             {}

// conversation is all that a server says to the probe.
func conversation(t *testing.T) []byte {
	fd, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	d := &device{file: os.NewFile(uintptr(fd), "bar")}
	t.Cleanup(func() { d.file.Close() })
	copy(d.config[:], []byte{0xde, 0x10, 0xd8, 0x06})
	s, err := vfiouser.NewServer(d, vfiouser.Options{})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	received := make(chan []byte, 1)
	relay := peer(t, func(c net.Conn) {
		var said bytes.Buffer
		defer func() { received <- said.Bytes() }()
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
	})
	got, err := probe.Probe(t.Context(), relay, time.Minute)
	require.NoError(t, err)
	require.Len(t, got.Regions, 2)
	require.Len(t, got.Regions[0].Areas, 2)
	require.EqualValues(t, 0x06d8, got.Config.Device)
	said := <-received
	require.Greater(t, len(said), 500)
	return said
}

// replay is a peer that sends fixed bytes, for any request, and closes.
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

// against probes a peer that says bytes.
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

// TestTruncatedAnywhere: the error of a conversation that ends after any of its bytes names that byte.
func TestTruncatedAnywhere(t *testing.T) {
	said, l := conversation(t), listener(t)
	_, err := against(t, l, said)
	require.NoError(t, err)
	for n := range said {
		_, err := against(t, l, said[:n])
		var b *probe.Broken
		require.True(t, errors.As(err, &b), "after %d bytes: %v", n, err)
		require.EqualValues(t, n, b.Offset, "%v", err)
		if n > 0 {
			require.ErrorContains(t, err, fmt.Sprintf("byte %d of what the server sent", n))
		}
		require.ErrorContains(t, err, "closed the connection")
	}
}

// TestNonsenseAnywhere: for any change in a conversation, the probe ends; an error names a byte
// that was sent.
func TestNonsenseAnywhere(t *testing.T) {
	said, l := conversation(t), listener(t)
	complaints := 0
	rapid.Check(t, func(t *rapid.T) {
		p := bytes.Clone(said)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
			p[at] = rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff, p[at] + 1}).Draw(t, "byte")
		}
		d, err := against(t, l, p)
		var b *probe.Broken
		switch {
		case err == nil:
			_ = d.Text()
		case !errors.As(err, &b):
			t.Fatalf("%v", err)
		default:
			complaints++
			if b.Offset < 0 || b.Offset > int64(len(p)) {
				t.Fatalf("byte %d of %d: %v", b.Offset, len(p), err)
			}
		}
	})
	require.Positive(t, complaints)
}

// TestNonsenseInside: replies that are whole and say what cannot be.
func TestNonsenseInside(t *testing.T) {
	said, l := conversation(t), listener(t)
	// Where the reply to a command begins, the nth of it.
	find := func(cmd wire.Command, nth int) int {
		for at := 0; at < len(said); {
			h := wire.Parse[wire.Header](said[at:])
			if h.Command == cmd {
				if nth == 0 {
					return at
				}
				nth--
			}
			at += int(h.Size)
		}
		t.Fatalf("no reply to %v", cmd)
		return 0
	}
	info, withParts := find(wire.DeviceGetInfo, 0)+wire.HeaderSize, find(wire.DeviceGetRegionInfo, 1)+wire.HeaderSize
	for _, c := range []struct {
		name string
		at   int
		v    uint32
		says string
	}{
		{"a billion regions", info + 8, 1e9, "1000000000 regions"},
		{"a billion interrupts", info + 12, 1e9, "1000000000 interrupts"},
		{"parts that are not there", withParts + wire.RegionInfoSize + 8, 1 << 28, "areas in"},
		{"capabilities outside", withParts + 12, 0xfffffff0, "capability at 4294967280"},
		{"capabilities inside of the structure", withParts + 12, 4, "capability at 4"},
		{"capabilities in a circle", withParts + wire.RegionInfoSize + 4, wire.RegionInfoSize, "chain without end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := bytes.Clone(said)
			binary.LittleEndian.PutUint32(p[c.at:], c.v)
			_, err := against(t, l, p)
			var b *probe.Broken
			require.True(t, errors.As(err, &b), "%v", err)
			require.ErrorIs(t, err, probe.ErrNonsense)
			require.ErrorContains(t, err, c.says)
			require.Greater(t, b.Offset, int64(c.at))
			require.Less(t, b.Offset, int64(len(p)))
		})
	}
}
