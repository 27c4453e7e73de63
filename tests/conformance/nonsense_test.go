package conformance

import (
	"encoding/binary"
	"io"
	"sync"
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
	return wire.Message(wire.Parse[wire.Header](reply), reply[wire.HeaderSize:min(len(reply), wire.HeaderSize+n)])
}

// nonsense returns servers with wrong answers. All but the first start with them once the
// suite has its description of the device.
func nonsense(described *atomic.Bool) []plant {
	few := func(m client.Message, reply []byte) []byte {
		if m.Command == wire.DeviceGetInfo && !refused(reply) && len(reply) == wire.HeaderSize+wire.DeviceInfoSize {
			binary.LittleEndian.PutUint32(reply[wire.HeaderSize+8:], 3)
			binary.LittleEndian.PutUint32(reply[wire.HeaderSize+12:], 1)
		}
		return reply
	}
	later := func(fault func(client.Message, []byte) []byte) func(client.Message, []byte) []byte {
		return func(m client.Message, reply []byte) []byte {
			if m.Command == wire.Version || !described.Load() {
				return reply
			}
			return fault(m, reply)
		}
	}
	return []plant{
		{what: "three regions and one interrupt", fault: few},
		{what: "everything is an echo", fault: later(func(m client.Message, _ []byte) []byte { return success(m, m.Payload) })},
		{what: "payloads of 17 bytes at most", fault: later(func(_ client.Message, reply []byte) []byte { return shortened(reply, 17) })},
	}
}

// TestSuiteOfNonsense: for any answers of a server, the suite runs all its cases and
// reports each. An answer that it cannot read fails the case.
func TestSuiteOfNonsense(t *testing.T) {
	for i, p := range nonsense(nil) {
		t.Run(p.what, func(t *testing.T) {
			t.Parallel() // the suite mostly waits for answers that do not come
			var described atomic.Bool
			p := &nonsense(&described)[i]
			dev := newEverything(t)
			_, server := serveAt(t, serve.Native, dev)
			reports, failed := 0, 0
			o := conformance.Options{Dial: conformance.DialPath(newRelay(t, p, server)), Timeout: 500 * time.Millisecond}
			report := func(r conformance.Result) {
				described.Store(true)
				reports++
				if r.Outcome == conformance.Failed {
					failed++
				}
			}
			err := conformance.Run(t.Context(), o, report)
			// The description took longer than the timeout: the machine is busy.
			for err != nil && reports == 0 && o.Timeout < 30*time.Second {
				o.Timeout *= 4
				err = conformance.Run(t.Context(), o, report)
			}
			require.NoError(t, err)
			require.Equal(t, len(conformance.Cases()), reports)
			require.Positive(t, failed)
		})
	}
}

// TestSuiteOfEndlessServers: the suite ends although a server sends for ever, and never the
// answer that it waits for.
func TestSuiteOfEndlessServers(t *testing.T) {
	version := wire.Append(nil, wire.Header{ID: 1, Command: wire.Version, Size: 1 << 20, Flags: wire.TypeReply})
	version = append(version, make([]byte, 1<<20)...)
	request := wire.Message(wire.Header{ID: 1, Command: wire.DMARead}, make([]byte, wire.DMAAccessSize))
	for name, say := range map[string]func(i int) []byte{
		"a reply byte by byte": func(i int) []byte { return version[i : i+1] },
		"requests":             func(int) []byte { return request },
	} {
		t.Run(name, func(t *testing.T) {
			l := listener(t)
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
				for i := 0; err == nil; i = (i + 1) % len(version) {
					_, err = c.Write(say(i))
					time.Sleep(5 * time.Millisecond)
				}
			})
			o := conformance.Options{Dial: conformance.DialPath(l.Addr().String()), Timeout: 200 * time.Millisecond}
			err := conformance.Run(t.Context(), o, func(conformance.Result) {})
			require.ErrorContains(t, err, "VERSION got no answer in time")
		})
	}
}
