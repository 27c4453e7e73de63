package conformance

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// A plant is one fault, in a relay before a server that has none. It is given a
// message and what the server says to it, and returns what the client gets.
type plant struct {
	family string // of the cases that have to notice
	what   string
	fault  func(m client.Message, reply []byte) []byte
	// keep has the relay keep the descriptors that a client sends.
	keep bool
	// halfOpen has the relay keep its connection to the server when its client leaves.
	halfOpen bool
	// swap has the relay send replies to pipelined messages in the wrong order.
	swap bool
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
}

// relay serves clients at a path, one after the other, with what a server at
// another path says, changed by a plant.
type relay struct {
	p      *plant
	server string
	l      *net.UnixListener
	wg     sync.WaitGroup
	mu     sync.Mutex
	open   []int // descriptors kept by the fault
	conns  []*client.Client
}

func newRelay(t *testing.T, p *plant, server string) string {
	path := filepath.Join(t.TempDir(), "r")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	r := &relay{p: p, server: server, l: l}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Shutdown()
		}
		r.mu.Unlock()
		r.wg.Wait()
		for _, c := range r.conns {
			c.Close()
		}
		for _, fd := range r.open {
			unix.Close(fd)
		}
	})
	return path
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
		fd, err := conformance.DialPath(r.server)()
		if err != nil {
			near.Close()
			continue
		}
		far, err := client.NewFD(fd, &client.Options{NoVersion: true})
		if err != nil {
			near.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, near, far)
		r.mu.Unlock()
		if r.p.halfOpen {
			r.wg.Go(func() { r.pass(near, far) })
			continue
		}
		r.pass(near, far)
		r.drop(near)
		r.drop(far)
	}
}

// drop closes a connection that the cleaning up need not end.
func (r *relay) drop(c *client.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = slices.DeleteFunc(r.conns, func(x *client.Client) bool { return x == c })
	c.Close()
}

// relayLimits are cases that the relay itself fails: it hands on whole messages.
var relayLimits = map[string]string{
	"size 64 MiB": "the relay waits for the rest of the message",
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
		fds := m.FDs
		if r.p.keep {
			r.mu.Lock()
			r.open = append(r.open, fds...)
			r.mu.Unlock()
		}
		err = far.Send(wire.Message(m.Header, m.Payload), fds...)
		if !r.p.keep {
			for _, fd := range fds {
				unix.Close(fd)
			}
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
		if r.p.fault != nil {
			reply = r.p.fault(m, reply)
		}
		// A reply is held back while the message after it is in the socket already.
		if r.p.swap && held == nil && near.Buffered() {
			held = reply
			continue
		}
		err = near.Send(append(reply, held...), a.FDs...)
		held = nil
		for _, fd := range a.FDs {
			unix.Close(fd)
		}
		if err != nil || m.Command == wire.Version && len(m.Payload) >= 2 && m.Payload[0]|m.Payload[1] != 0 {
			return // the server closes a connection of another major version
		}
	}
}

// TestPlantedFaults: a server with one fault per family fails a case of that
// family. The same relay without a fault fails none of them, so the fault is the
// reason.
func TestPlantedFaults(t *testing.T) {
	covered := map[string]bool{}
	for i := range plants {
		p := &plants[i]
		covered[p.family] = true
		t.Run(p.family, func(t *testing.T) {
			t.Parallel() // the suite waits for what a fault keeps back
			t.Logf("planted: %s", p.what)
			// The timeout is enough without the fault, so a timeout with it is no accident of a busy machine.
			timeout := 2 * time.Second
			failed, passed := throughRelay(t, &plant{family: p.family}, timeout)
			if failed != nil {
				timeout = 30 * time.Second
				failed, passed = throughRelay(t, &plant{family: p.family}, timeout)
			}
			require.Nil(t, failed, "without the fault")
			require.NotZero(t, passed)
			failed, _ = throughRelay(t, p, timeout)
			require.NotNil(t, failed, "the fault is not noticed")
			t.Logf("caught by %s: %s: %s", failed.Family, failed.Name, failed.Found)
		})
	}
	for _, f := range conformance.Families() {
		require.True(t, covered[f], "no fault is planted in family %s", f)
	}
}

// throughRelay runs a family's cases through a relay, up to the first that fails.
// An answer may take as long as timeout.
func throughRelay(t *testing.T, p *plant, timeout time.Duration) (failed *conformance.Result, passed int) {
	t.Helper()
	dev := newEverything(t)
	_, server := serveAt(t, serve.Native, dev)
	path := newRelay(t, p, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := conformance.Run(ctx, conformance.Options{Dial: conformance.DialPath(path), Timeout: timeout, Families: []string{p.family}}, func(r conformance.Result) {
		switch {
		case r.Outcome == conformance.Failed && relayLimits[r.Name] == "" && failed == nil:
			failed = &r
			cancel()
		case r.Outcome == conformance.Passed:
			passed++
		}
	})
	if err != nil && failed == nil {
		failed = &conformance.Result{Case: conformance.Case{Family: p.family, Name: "description"}, Found: err.Error()}
	}
	return failed, passed
}
