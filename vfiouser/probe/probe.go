// Package probe describes the device of a vfio-user server: version and capabilities, regions
// with their mappable areas, interrupts, and the decoded PCI configuration space.
//
// It changes nothing in the device: it negotiates, queries, and reads configuration space. If
// the peer is not a vfio-user server, or ends the conversation, the error is a [Broken] with
// the position in the peer's bytes.
//
// Everything runs on the caller's goroutine. The package has no state and no locks.
package probe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var le = binary.LittleEndian

// Device is the device as its server describes it.
type Device struct {
	Version      string          `json:"version"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"` // as the server wrote them
	Reset        bool            `json:"reset"`
	PCI          bool            `json:"pci"`
	Regions      []Region        `json:"regions"`
	IRQs         []IRQ           `json:"interrupts"`
	Config       *Config         `json:"config,omitempty"`
}

// Region is one region with a size.
type Region struct {
	Index  uint32      `json:"index"`
	Name   string      `json:"name"`
	Size   uint64      `json:"size"`
	Read   bool        `json:"read"`
	Write  bool        `json:"write"`
	Mmap   bool        `json:"mmap"`
	Offset uint64      `json:"offset,omitempty"` // in its file
	Areas  []wire.Area `json:"areas,omitempty"`  // that can be mapped; none with Mmap means all
	Files  int         `json:"descriptors,omitempty"`
}

// IRQ is one interrupt index.
type IRQ struct {
	Index uint32   `json:"index"`
	Name  string   `json:"name"`
	Count uint32   `json:"count"`
	Flags []string `json:"flags"`
}

// Broken is the error of a conversation that ended early.
type Broken struct {
	Offset  int64  // in the bytes that the peer sent
	Request string // the request
	Reading string // the part of the reply that was expected
	Err     error
}

func (b *Broken) Error() string {
	switch {
	case errors.Is(b.Err, errSilent):
		return fmt.Sprintf("%v; a vfio-user server is silent while another client is attached, other programs while they wait for a request of their own protocol", b.Err)
	case b.Offset == 0 && errors.Is(b.Err, errClosed):
		return fmt.Sprintf("%v before an answer; a vfio-user server does that while another client is attached, and any other program that does not understand the request", b.Err)
	case b.Offset <= wire.HeaderSize && b.Request == wire.Version.String() && errors.Is(b.Err, ErrNonsense):
		return fmt.Sprintf("no vfio-user server listens there: %v", b.Err)
	}
	return fmt.Sprintf("the conversation broke at byte %d of what the server sent, in %s of the reply to %s: %v", b.Offset, b.Reading, b.Request, b.Err)
}

func (b *Broken) Unwrap() error { return b.Err }

// ErrNonsense is the error of bytes that are no vfio-user reply.
var ErrNonsense = errors.New("not a vfio-user reply")

var (
	errSilent = errors.New("nothing answered")
	errClosed = errors.New("the server closed the connection")
)

// silence is the part of the time in which the first byte must arrive. A server
// answers VERSION without work, so the peer of a longer silence will not answer.
const silence = 5

// Probe asks the server at path about its device, for timeout at most. It gives up
// after a fifth of that if the peer has sent nothing at all.
func Probe(ctx context.Context, path string, timeout time.Duration) (*Device, error) {
	whole, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("nothing more within %v", timeout))
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(whole, "unix", path)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	c := &conversation{nc: nc.(*net.UnixConn)}
	expire := func() { _ = nc.SetDeadline(time.Unix(1, 0)) }
	defer context.AfterFunc(whole, expire)()
	wait := timeout / silence
	c.firstByte = time.AfterFunc(wait, expire).Stop
	defer c.firstByte()
	dev := &Device{}
	err = c.look(dev)
	var b *Broken
	if errors.Is(err, os.ErrDeadlineExceeded) && errors.As(err, &b) {
		switch {
		case ctx.Err() != nil:
			b.Err = ctx.Err()
		case b.Offset == 0:
			b.Err = fmt.Errorf("%w within %v", errSilent, wait)
		default:
			b.Err = context.Cause(whole)
		}
	}
	return dev, err
}

// Text writes d for a person.
func (d *Device) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "vfio-user %s, capabilities %s\n", d.Version, orNone(string(d.Capabilities)))
	fmt.Fprintf(&b, "device: PCI %v, reset %v\n\nRegions\n", yes(d.PCI), yes(d.Reset))
	for _, r := range d.Regions {
		fmt.Fprintf(&b, "  %d %-13s %10s  %s\n", r.Index, r.Name, Size(r.Size), rights(r))
		for _, a := range r.Areas {
			fmt.Fprintf(&b, "      mappable %#x-%#x\n", a.Offset, a.Offset+a.Size-1)
		}
	}
	b.WriteString("\nInterrupts\n")
	for _, q := range d.IRQs {
		fmt.Fprintf(&b, "  %d %-5s %4d  %s\n", q.Index, q.Name, q.Count, strings.Join(q.Flags, " "))
	}
	if d.Config != nil {
		b.WriteString("\nConfiguration space\n" + d.Config.Text())
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func rights(r Region) string {
	var out []string
	for _, x := range []struct {
		is   bool
		name string
	}{{r.Read, "read"}, {r.Write, "write"}, {r.Mmap, "mmap"}} {
		if x.is {
			out = append(out, x.name)
		}
	}
	if len(out) == 0 {
		return "neither read nor write, the server says"
	}
	return strings.Join(out, " ")
}

// Size is n as people and lspci write it.
func Size(n uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "T"}, {30, "G"}, {20, "M"}, {10, "K"}} {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d%s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d", n)
}
