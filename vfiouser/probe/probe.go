// Package probe describes the device of a vfio-user server: version and capabilities, regions
// with their mappable areas, interrupts, and the decoded PCI configuration space.
//
// It changes nothing in the device: it negotiates, queries, and reads configuration space.
//
// The package has no state and no locks. A timer ends a conversation that takes too long.
package probe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
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
}

// IRQ is one interrupt index.
type IRQ struct {
	Index uint32   `json:"index"`
	Name  string   `json:"name"`
	Count uint32   `json:"count"`
	Flags []string `json:"flags"`
}

// silence is the part of the time in which the answer to VERSION must arrive. A server gives it
// without work, so the peer of a longer silence will not answer.
const silence = 5

// Probe asks the server at path about its device, for timeout at most. It gives up after a fifth
// of that if the peer has not answered at all.
func Probe(ctx context.Context, path string, timeout time.Duration) (*Device, error) {
	fd, err := client.DialFD(path)
	if err != nil {
		return nil, err
	}
	c, err := client.NewFD(fd, &client.Options{NoVersion: true, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	d := &Device{}
	err = within(ctx, c, timeout/silence, d.negotiate)
	if err != nil {
		return d, explain(err)
	}
	return d, within(ctx, c, timeout, d.describe)
}

// within ends a part of the conversation after a time, or with ctx.
func within(ctx context.Context, c *client.Client, limit time.Duration, talk func(*client.Client) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("nothing answered within %v; a vfio-user server is silent while another client is attached, "+
		"other programs while they wait for a request of their own protocol", limit))
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Shutdown() })()
	err := talk(c)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// explain says what a peer may be that does not answer VERSION.
func explain(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return errors.New("the server closed the connection before an answer; a vfio-user server does that while another client is attached, and any other program that does not understand the request")
	case errors.Is(err, client.ErrProtocol):
		return fmt.Errorf("no vfio-user server listens there: %w", err)
	}
	return err
}

func (d *Device) negotiate(c *client.Client) error {
	m, err := c.Call(wire.Version, append(append([]byte{0, 0, 0, 0}, client.QEMUCapabilities...), 0))
	if err != nil {
		return err
	}
	caps, err := client.ParseVersion(m.Payload)
	if err != nil {
		return err
	}
	d.Version = fmt.Sprintf("%d.%d", caps.Major, caps.Minor)
	var doc struct{ Capabilities json.RawMessage }
	if text := m.Payload[wire.VersionSize:]; len(text) > 0 {
		_ = json.Unmarshal(text[:len(text)-1], &doc) // ParseVersion has read it
	}
	d.Capabilities = doc.Capabilities
	return nil
}

func (d *Device) describe(c *client.Client) error {
	info, err := c.Info()
	if err != nil {
		return err
	}
	d.Reset, d.PCI = info.Flags&wire.DeviceFlagReset != 0, info.Flags&wire.DeviceFlagPCI != 0
	const most = 256
	if info.NumRegions > most || info.NumIRQs > most {
		return fmt.Errorf("%w: %d regions, %d interrupts", client.ErrProtocol, info.NumRegions, info.NumIRQs)
	}
	for i := range info.NumRegions {
		r, err := c.RegionInfo(int(i))
		if r.File != nil {
			r.File.Close()
		}
		if err != nil {
			return fmt.Errorf("region %d: %w", i, err)
		}
		if r.Size > 0 {
			d.Regions = append(d.Regions, Region{
				Index: i, Name: name(regionNames, i), Size: r.Size, Offset: r.Offset, Areas: r.Areas,
				Read: r.Flags&wire.RegionFlagRead != 0, Write: r.Flags&wire.RegionFlagWrite != 0, Mmap: r.Flags&wire.RegionFlagMmap != 0,
			})
		}
		if i == configIndex && r.Size >= 64 {
			p := make([]byte, min(r.Size, 4096))
			if err := c.Read(configIndex, 0, p); err != nil {
				return fmt.Errorf("configuration space: %w", err)
			}
			d.Config = Decode(p, d.Regions)
		}
	}
	for i := range info.NumIRQs {
		q, err := c.IRQInfo(int(i))
		if err != nil {
			return fmt.Errorf("interrupt %d: %w", i, err)
		}
		d.IRQs = append(d.IRQs, IRQ{Index: i, Name: name(irqNames, i), Count: q.Count, Flags: names(q.Flags, irqFlags)})
	}
	return nil
}

const configIndex = 7

var (
	regionNames = []string{"BAR0", "BAR1", "BAR2", "BAR3", "BAR4", "BAR5", "ROM", "configuration", "VGA"}
	irqNames    = []string{"INTx", "MSI", "MSI-X", "ERR", "REQ"}
	irqFlags    = []flag{{wire.IRQFlagEventFD, "eventfd"}, {wire.IRQFlagMaskable, "maskable"}, {wire.IRQFlagAutomasked, "automasked"}, {wire.IRQFlagNoResize, "noresize"}}
)

func name(names []string, i uint32) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%d", i)
}

type flag struct {
	mask uint32
	name string
}

// names lists the flags that are set.
func names(v uint32, flags []flag) []string {
	out := []string{}
	for _, f := range flags {
		if v&f.mask != 0 {
			out = append(out, f.name)
		}
	}
	return out
}

// Text writes d for a person.
func (d *Device) Text() string {
	var b strings.Builder
	capabilities, yes := "none", map[bool]string{true: "yes", false: "no"}
	if len(d.Capabilities) > 0 {
		capabilities = string(d.Capabilities)
	}
	fmt.Fprintf(&b, "vfio-user %s, capabilities %s\n", d.Version, capabilities)
	fmt.Fprintf(&b, "device: PCI %v, reset %v\n\nRegions\n", yes[d.PCI], yes[d.Reset])
	for _, r := range d.Regions {
		rights := "neither read nor write, the server says"
		if r.Read || r.Write || r.Mmap {
			rights = strings.TrimSpace(map[bool]string{true: "read "}[r.Read] + map[bool]string{true: "write "}[r.Write] + map[bool]string{true: "mmap"}[r.Mmap])
		}
		fmt.Fprintf(&b, "  %d %-13s %10s  %s\n", r.Index, r.Name, size(r.Size), rights)
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

// size is n as people and lspci write it.
func size(n uint64) string {
	for i, unit := range []string{"T", "G", "M", "K"} {
		if shift := 40 - 10*i; n >= 1<<shift && n%(1<<shift) == 0 {
			return fmt.Sprintf("%d%s", n>>shift, unit)
		}
	}
	return fmt.Sprint(n)
}
