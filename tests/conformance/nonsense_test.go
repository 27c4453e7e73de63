package conformance

import (
	"encoding/binary"
	"fmt"
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

// TestSuiteOfNonsense: whatever a server says, the suite goes through all its cases and tells of
// each; what it cannot read is the case's failure.
func TestSuiteOfNonsense(t *testing.T) {
	var described atomic.Bool // the suite has its description of the device
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
	for i := range plants {
		p := &plants[i]
		t.Run(p.what, func(t *testing.T) {
			described.Store(false)
			dev, err := newEverything()
			require.NoError(t, err)
			t.Cleanup(dev.close)
			_, server := serveAt(t, serve.Native, dev)
			told, failed := 0, 0
			o := conformance.Options{Dial: conformance.DialPath(newRelay(t, p, server)), Timeout: 300 * time.Millisecond}
			require.NoError(t, conformance.Run(t.Context(), o, func(r conformance.Result) {
				described.Store(true)
				told++
				if r.Outcome == conformance.Failed {
					failed++
				}
			}))
			require.Equal(t, len(conformance.Cases()), told)
			require.Positive(t, failed)
		})
	}
}
