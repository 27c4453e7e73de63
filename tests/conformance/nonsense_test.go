package conformance

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// shortened cuts a reply's payload to n bytes, in its header too.
func shortened(reply []byte, n int) []byte {
	reply = reply[:min(len(reply), wire.HeaderSize+n)]
	h := wire.ParseHeader(reply)
	h.Size = uint32(len(reply))
	h.Put(reply)
	return reply
}

// nonsense are servers that answer something else than they should, most of them as soon as
// the suite has its description of the device.
func nonsense(described *atomic.Bool) []plant {
	info := func(regions, irqs uint32) func(client.Message, []byte) []byte {
		return func(m client.Message, reply []byte) []byte {
			if m.Command == wire.DeviceGetInfo && !refused(reply) && len(reply) == wire.HeaderSize+wire.DeviceInfoSize {
				binary.LittleEndian.PutUint32(reply[wire.HeaderSize+8:], regions)
				binary.LittleEndian.PutUint32(reply[wire.HeaderSize+12:], irqs)
			}
			return reply
		}
	}
	later := func(fault func(client.Message, []byte) []byte) func(client.Message, []byte) []byte {
		return func(m client.Message, reply []byte) []byte {
			if m.Command == wire.Version || !described.Load() {
				return reply
			}
			return fault(m, reply)
		}
	}
	cut := func(n int) func(client.Message, []byte) []byte {
		return later(func(_ client.Message, reply []byte) []byte { return shortened(reply, n) })
	}
	plants := []plant{
		{what: "no regions and no interrupts", fault: info(0, 0)},
		{what: "three regions and one interrupt", fault: info(3, 1)},
		{what: "everything succeeds and says nothing", fault: later(func(m client.Message, _ []byte) []byte { return success(m, nil) })},
		{what: "everything is an echo", fault: later(func(m client.Message, _ []byte) []byte { return success(m, m.Payload) })},
	}
	for _, n := range []int{0, 8, 17, 31} {
		plants = append(plants, plant{what: fmt.Sprintf("payloads of %d bytes at most", n), fault: cut(n)})
	}
	return plants
}

// TestSuiteOfNonsense: whatever a server says, the suite goes through all its cases and tells of
// each; what it cannot read is the case's failure.
func TestSuiteOfNonsense(t *testing.T) {
	for i, p := range nonsense(nil) {
		t.Run(p.what, func(t *testing.T) {
			t.Parallel() // the suite mostly waits for answers that do not come
			var described atomic.Bool
			p := &nonsense(&described)[i]
			dev, err := newEverything()
			require.NoError(t, err)
			t.Cleanup(dev.close)
			_, server := serveAt(t, serve.Native, dev)
			told, failed := 0, 0
			o := conformance.Options{Dial: conformance.DialPath(newRelay(t, p, server)), Timeout: 500 * time.Millisecond}
			tell := func(r conformance.Result) {
				described.Store(true)
				told++
				if r.Outcome == conformance.Failed {
					failed++
				}
			}
			err = conformance.Run(t.Context(), o, tell)
			// A description that took longer than an answer may, as nobody had a processor, says nothing.
			for err != nil && told == 0 && o.Timeout < 30*time.Second {
				o.Timeout *= 4
				err = conformance.Run(t.Context(), o, tell)
			}
			require.NoError(t, err)
			require.Equal(t, len(conformance.Cases()), told)
			require.Positive(t, failed)
		})
	}
}

// TestSuiteOfEndlessServers: a server that says something for ever, and never what was asked for,
// does not keep the suite.
func TestSuiteOfEndlessServers(t *testing.T) {
	version := make([]byte, wire.HeaderSize)
	wire.Header{ID: 1, Command: wire.Version, Size: 1 << 20, Flags: wire.TypeReply}.Put(version)
	request := make([]byte, wire.HeaderSize+wire.DMAAccessSize)
	wire.Header{ID: 1, Command: wire.DMARead, Size: uint32(len(request))}.Put(request)
	for name, say := range map[string]func(i int) []byte{
		"a reply byte by byte": func(i int) []byte { return append(version, make([]byte, 1<<20)...)[i : i+1] },
		"requests":             func(int) []byte { return request },
	} {
		t.Run(name, func(t *testing.T) {
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
				go func() { _, _ = io.Copy(io.Discard, c) }()
				for i := range 2000 { // it ends if the suite does not
					if _, err := c.Write(say(i)); err != nil {
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
			defer func() {
				l.Close()
				<-done
			}()
			o := conformance.Options{Dial: conformance.DialPath(path), Timeout: 200 * time.Millisecond}
			err = conformance.Run(t.Context(), o, func(conformance.Result) {})
			require.ErrorContains(t, err, "VERSION got no answer in time")
		})
	}
}
