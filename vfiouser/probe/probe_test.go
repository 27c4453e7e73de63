package probe_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/vfiouser/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func peer(t *testing.T, serve func(c net.Conn)) string {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		serve(c)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}

// goodVersion is the reply to the probe's VERSION: 43 bytes.
var goodVersion = append([]byte{1, 0, 1, 0, 43, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "{\"capabilities\":{}}  \n\x00"...)

// TestNotAServer: for any peer the probe ends, and says what the peer may be.
func TestNotAServer(t *testing.T) {
	hold := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	send := func(b []byte) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write(b)
			hold(c)
		}
	}
	for name, tt := range map[string]struct {
		serve func(net.Conn)
		says  string
	}{
		"closes":        {func(net.Conn) {}, "the server closed the connection before an answer; a vfio-user server does that while another client is attached"},
		"says nothing":  {hold, "; a vfio-user server is silent while another client is attached"},
		"half a header": {send(goodVersion[:7]), "nothing answered within "},
		"HTTP":          {send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), "no vfio-user server listens there: "},
		"another id":    {send(append([]byte{9}, goodVersion[1:]...)), "no vfio-user server listens there: "},
		"an error":      {send([]byte{1, 0, 1, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0}), "invalid argument"},
		"only VERSION":  {send(goodVersion), "no answer within "},
		"broken JSON":   {send(bytes.Replace(goodVersion, []byte("{}}"), []byte("{{}"), 1)), "no vfio-user server listens there: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			for timeout := 500 * time.Millisecond; timeout < time.Minute; timeout *= 4 { // the machine may be busy
				if _, err = probe.Probe(t.Context(), peer(t, tt.serve), timeout); strings.Contains(err.Error(), tt.says) {
					return
				}
			}
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestCancelledProbe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	path := peer(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		cancel()
		_, _ = io.Copy(io.Discard, c)
	})
	_, err := probe.Probe(ctx, path, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
}

// TestDecode: a configuration space put together by hand from the PCI
// specification.
func TestDecode(t *testing.T) {
	p := make([]byte, 4096)
	put32 := func(at int, v uint32) { binary.LittleEndian.PutUint32(p[at:], v) }
	put32(0x00, 0x06d810de)
	put32(0x04, 0x00100407)
	put32(0x08, 0x030000a3)
	put32(0x10, 0xfa000000)
	put32(0x14, 0xe000000c)
	put32(0x18, 0x00000001)
	put32(0x24, 0x0000e001)
	put32(0x2c, 0x076f10de)
	put32(0x30, 0xfb000001)
	p[0x34], p[0x3c], p[0x3d] = 0x60, 11, 1
	put32(0x60, 0x00036801) // power management, next 68
	put32(0x64, 0x00000008)
	put32(0x68, 0x00817805) // MSI, 64 bits, enabled, next 78
	put32(0x6c, 0xfee00000)
	put32(0x74, 0x4041)
	put32(0x78, 0x80030011) // MSI-X, 4 vectors, enabled, last
	put32(0x7c, 0x00002001)
	put32(0x80, 0x00003001)
	put32(0x100, 0x1281_0003)
	put32(0x128, 0x0001_000b)
	text := probe.Decode(p, nil).Text()
	for _, want := range []string{
		"VGA compatible controller [0300]: 10de:06d8 (rev a3)",
		"Subsystem: 10de:076f",
		"Control: I/O+ Mem+ BusMaster+ SpecCycle- ",
		"Status: Cap+ 66MHz-",
		"Interrupt: pin A routed to IRQ 11",
		"Region 0: Memory at fa000000 (32-bit, non-prefetchable)",
		"Region 1: Memory at 1e0000000 (64-bit, prefetchable)",
		"Region 5: I/O ports at e000",
		"Expansion ROM at fb000000 [enabled]",
		"Capabilities: [60] Power Management: version 3, state D0\n",
		"Capabilities: [68] MSI: Enable+ Maskable- 64bit+ Count=1/1",
		"Address: 00000000fee00000  Data: 4041",
		"Capabilities: [78] MSI-X: Enable+ Masked- Count=4",
		"Vector table: BAR=1 offset=00002000",
		"Capabilities: [100 v1] Device Serial Number\n",
		"Capabilities: [128 v1] Vendor Specific Information\n",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "wrong:")

	// Before firmware has run: no addresses, and the regions describe the BARs.
	sizes := []probe.Region{{Index: 1, Size: 128 << 20}}
	fresh := bytes.Clone(p)
	clear(fresh[4:6])
	binary.LittleEndian.PutUint64(fresh[0x14:], 0xc)
	text = probe.Decode(fresh, sizes).Text()
	require.Contains(t, text, "Region 1: Memory at <unassigned> (64-bit, prefetchable) [disabled] [size=128M]\n")
	require.NotContains(t, text, "Region 2")

	put32(0x78, 0x80036011) // back to the first
	p[0x79] = 0x60
	put32(0x128, 0x1001_000b)
	text = probe.Decode(p, nil).Text()
	require.Contains(t, text, "wrong: capability at 0x60: the list is a cycle")
	require.Contains(t, text, "wrong: capability at 0x100: the list is a cycle")
}

// decodeAnything: no bytes make the decoder panic or run on.
func decodeAnything(t *rapid.T) {
	n := rapid.SampledFrom([]int{64, 100, 256, 4096}).Draw(t, "size")
	p := make([]byte, n)
	for range rapid.IntRange(0, 60).Draw(t, "bytes") {
		p[rapid.IntRange(0, n-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
	}
	p[6] |= 0x10
	probe.Decode(p, nil).Text()
}

func TestDecodeAnything(t *testing.T) { rapid.Check(t, decodeAnything) }

func FuzzDecode(f *testing.F) { f.Fuzz(rapid.MakeFuzz(decodeAnything)) }
