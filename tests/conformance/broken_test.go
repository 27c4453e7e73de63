package conformance

import (
	"context"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// A plant is one fault, in a relay before a server that has none.
type plant struct {
	family string // of the cases that have to notice; "" is all
	what   string
	// fault is given a message and the server's reply, and returns what the client gets.
	fault    func(m client.Message, reply []byte) []byte
	later    bool // the fault begins when the suite has its description of the device
	keep     bool // descriptors that a client sends are kept
	halfOpen bool // the connection to the server is kept when the client leaves
	swap     bool // replies to pipelined messages are sent in the wrong order
}

func success(m client.Message, payload []byte) []byte {
	return wire.Message(wire.Header{ID: m.ID, Command: m.Command, Flags: wire.TypeReply}, payload)
}

func refused(reply []byte) bool { return wire.Parse[wire.Header](reply).Flags&wire.Error != 0 }

func accepting(cmd wire.Command) func(m client.Message, reply []byte) []byte {
	return func(m client.Message, reply []byte) []byte {
		if m.Command == cmd && refused(reply) {
			return success(m, m.Payload)
		}
		return reply
	}
}

// replacing gives a command's replies another payload.
func replacing(cmd wire.Command, payload []byte) func(m client.Message, reply []byte) []byte {
	return func(m client.Message, reply []byte) []byte {
		if m.Command == cmd && !refused(reply) {
			return success(m, payload)
		}
		return reply
	}
}

// changing edits the payload of a command's replies.
func changing(cmd wire.Command, edit func(payload []byte)) func(m client.Message, reply []byte) []byte {
	return func(m client.Message, reply []byte) []byte {
		if m.Command == cmd && !refused(reply) {
			edit(reply[wire.HeaderSize:])
		}
		return reply
	}
}

var plants = []plant{
	{family: "negotiation", what: "the reply's minor is one more than proposed", fault: changing(wire.Version, func(p []byte) { p[2]++ })},
	{family: "requests", what: "unknown commands succeed", fault: func(m client.Message, reply []byte) []byte {
		if m.Command >= wire.NumCommands && refused(reply) {
			return success(m, nil)
		}
		return reply
	}},
	{family: "device info", what: "argsz is not looked at", fault: accepting(wire.DeviceGetInfo)},
	{family: "region info", what: "the needed argsz is one too small", fault: changing(wire.DeviceGetRegionInfo, func(p []byte) {
		if p[0] > wire.RegionInfoSize {
			p[0]--
		}
	})},
	{family: "irq info", what: "the index is always 0", fault: changing(wire.DeviceGetIRQInfo, func(p []byte) { p[8] = 0 })},
	{family: "set irqs", what: "two actions in one message are accepted", fault: accepting(wire.DeviceSetIRQs)},
	{family: "dma map", what: "an overlap is accepted", fault: accepting(wire.DMAMap)},
	{family: "dma unmap", what: "the reply has no payload", fault: replacing(wire.DMAUnmap, nil)},
	{family: "io fds", what: "flags and count are not looked at", fault: accepting(wire.DeviceGetRegionIO)},
	{family: "region access", what: "reads out of bounds give zeros", fault: func(m client.Message, reply []byte) []byte {
		if m.Command == wire.RegionRead && refused(reply) && len(m.Payload) == wire.RegionAccessSize {
			return success(m, append(m.Payload[:16:16], make([]byte, min(wire.Parse[wire.RegionAccess](m.Payload).Count, 64))...))
		}
		return reply
	}},
	{family: "write multi", what: "one write too few is reported", fault: changing(wire.RegionWriteMulti, func(p []byte) { p[0]-- })},
	{family: "reset", what: "the reply has a payload", fault: replacing(wire.DeviceReset, make([]byte, 4))},
	{family: "dirty pages", what: "unknown features are there", fault: accepting(wire.DeviceFeature)},
	{family: "migration", what: "data is taken in any state", fault: accepting(wire.MigDataWrite)},
	{family: "disconnect", what: "the client's end is not noticed", halfOpen: true},
	{family: "pipelining", what: "replies overtake each other", swap: true},
	{family: "descriptors", what: "received descriptors are kept", keep: true},
	{what: "three regions and one interrupt", fault: changing(wire.DeviceGetInfo, func(p []byte) {
		binary.LittleEndian.PutUint32(p[8:], 3)
		binary.LittleEndian.PutUint32(p[12:], 1)
	})},
	{what: "everything is an echo", later: true, fault: func(m client.Message, _ []byte) []byte { return success(m, m.Payload) }},
	{what: "payloads of 17 bytes at most", later: true, fault: func(_ client.Message, reply []byte) []byte {
		return wire.Message(wire.Parse[wire.Header](reply), reply[wire.HeaderSize:min(len(reply), wire.HeaderSize+17)])
	}},
}

// relay serves clients, one after the other, with what a server at a path says, changed by a plant.
type relay struct {
	p         *plant
	server    string
	l         *net.UnixListener
	described atomic.Bool
	wg        sync.WaitGroup
	mu        sync.Mutex
	conns     map[*client.Client]bool
	kept      []int // descriptors
}

func newRelay(t *testing.T, p *plant, server string) *relay {
	r := &relay{p: p, server: server, l: listener(t), conns: map[*client.Client]bool{}}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		r.l.Close()
		r.mu.Lock()
		for c := range r.conns {
			_ = c.Shutdown()
		}
		r.mu.Unlock()
		r.wg.Wait()
		for _, c := range slices.Collect(maps.Keys(r.conns)) {
			r.close(c)
		}
		closeAll(r.kept)
	})
	return r
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func (r *relay) close(c *client.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	c.Close()
}

func (r *relay) accept() {
	for {
		nc, err := r.l.AcceptUnix()
		if err != nil {
			return
		}
		near, err := client.New(nc, &client.Options{NoVersion: true})
		if err != nil {
			continue
		}
		far, err := client.Dial(r.server, &client.Options{NoVersion: true})
		if err != nil {
			near.Close()
			continue
		}
		r.mu.Lock()
		r.conns[near], r.conns[far] = true, true
		r.mu.Unlock()
		if r.p.halfOpen {
			r.wg.Go(func() { r.pass(near, far) })
			continue
		}
		r.pass(near, far)
		r.close(near)
		r.close(far)
	}
}

// pass forwards messages until one side disconnects.
func (r *relay) pass(near, far *client.Client) {
	defer near.Shutdown()
	var held []byte
	for {
		m, err := near.RecvAny()
		if err != nil {
			return
		}
		err = far.Send(wire.Message(m.Header, m.Payload), m.FDs...)
		if r.p.keep {
			r.kept = append(r.kept, m.FDs...)
		} else {
			closeAll(m.FDs)
		}
		if err != nil {
			return
		}
		if m.Flags&wire.NoReply != 0 {
			continue
		}
		a, err := far.RecvAny()
		if err != nil {
			return
		}
		reply := wire.Message(a.Header, a.Payload)
		if r.p.fault != nil && (!r.p.later || r.described.Load() && m.Command != wire.Version) {
			reply = r.p.fault(m, reply)
		}
		// A reply is held back while the message after it is in the socket already.
		if r.p.swap && held == nil && near.Buffered() {
			held = reply
			continue
		}
		err = near.Send(append(reply, held...), a.FDs...)
		held = nil
		closeAll(a.FDs)
		if err != nil || m.Command == wire.Version && len(m.Payload) >= 2 && m.Payload[0]|m.Payload[1] != 0 {
			return // the server closes a connection of another major version
		}
	}
}

// TestPlantedFaults: a server with one fault per family fails a case of that
// family. The same relay without a fault fails none of them, so the fault is the
// reason. For any answers of a server, the suite runs all its cases and reports each.
func TestPlantedFaults(t *testing.T) {
	covered := map[string]bool{}
	for i := range plants {
		p := &plants[i]
		covered[p.family] = true
		t.Run(p.what, func(t *testing.T) {
			t.Parallel() // the suite waits for what a fault keeps back
			if p.family == "" {
				failed, reports := throughRelay(t, p, 500*time.Millisecond)
				require.NotNil(t, failed)
				require.Equal(t, len(conformance.Cases()), reports)
				return
			}
			// The timeout is enough without the fault, so a timeout with it is no accident of a busy machine.
			timeout := 2 * time.Second
			failed, _ := throughRelay(t, &plant{family: p.family}, timeout)
			if failed != nil {
				timeout = 30 * time.Second
				failed, _ = throughRelay(t, &plant{family: p.family}, timeout)
			}
			require.Nil(t, failed, "without the fault")
			failed, _ = throughRelay(t, p, timeout)
			require.NotNil(t, failed, "the fault is not noticed")
			t.Logf("caught by %s: %s: %s", failed.Family, failed.Name, failed.Found)
		})
	}
	for _, f := range conformance.Families() {
		require.True(t, covered[f], "no fault is planted in family %s", f)
	}
}

// throughRelay runs a plant's cases through a relay: of a family, up to the first that fails. An answer
// may take as long as timeout.
func throughRelay(t *testing.T, p *plant, timeout time.Duration) (failed *conformance.Result, reports int) {
	t.Helper()
	_, server := serveAt(t, serve.Native, newEverything(t))
	r := newRelay(t, p, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := conformance.Options{Dial: conformance.DialPath(r.l.Addr().String()), Timeout: timeout}
	if p.family != "" {
		o.Families = []string{p.family}
	}
	report := func(found conformance.Result) {
		r.described.Store(true)
		reports++
		// The relay hands on whole messages, so it waits for the rest of 64 MiB.
		if found.Outcome == conformance.Failed && found.Name != "size 64 MiB" && failed == nil {
			failed = &found
			if p.family != "" {
				cancel()
			}
		}
	}
	err := conformance.Run(ctx, o, report)
	for err != nil && reports == 0 && o.Timeout < 30*time.Second { // the machine is busy
		o.Timeout *= 4
		err = conformance.Run(ctx, o, report)
	}
	if err != nil && failed == nil {
		failed = &conformance.Result{Case: conformance.Case{Family: p.family, Name: "description"}, Found: err.Error()}
	}
	return failed, reports
}
