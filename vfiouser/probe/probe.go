// Package probe looks at a vfio-user server as a client does, and says what is there: version
// and capabilities, regions with what can be mapped of them, interrupts, and PCI configuration
// space decoded.
//
// It changes nothing in the device: it negotiates, asks, and reads configuration space. A peer
// that is no vfio-user server, or breaks off, costs no more than the time-out: the error is a
// Broken, which says where in the peer's bytes the conversation ended.
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
	"time"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var le = binary.LittleEndian

// Device is what a server says of its device.
type Device struct {
	Version      string          `json:"version"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"` // as the server wrote them
	Reset        bool            `json:"reset"`
	PCI          bool            `json:"pci"`
	Regions      []Region        `json:"regions"`
	IRQs         []IRQ           `json:"interrupts"`
	Config       *Config         `json:"config,omitempty"`
}

// Region is one region that is there.
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

// Broken says where a conversation ended.
type Broken struct {
	Offset  int64  // in what the peer sent
	Doing   string // what was asked
	Reading string // what was expected there
	Err     error
}

func (b *Broken) Error() string {
	guess := ""
	if b.Offset == 0 && !errors.Is(b.Err, ErrNonsense) && !errors.Is(b.Err, context.Canceled) {
		guess = "; perhaps another client is attached: a server takes one at a time"
	}
	return fmt.Sprintf("the conversation broke at byte %d of what the server sent, in %s of the reply to %s: %v%s", b.Offset, b.Reading, b.Doing, b.Err, guess)
}

func (b *Broken) Unwrap() error { return b.Err }

// ErrNonsense says that the peer's bytes are no vfio-user reply.
var ErrNonsense = errors.New("not a vfio-user reply")

// DefaultTimeout bounds a whole probe.
const DefaultTimeout = 5 * time.Second

// Probe looks at the server at path, for timeout at most.
func Probe(ctx context.Context, path string, timeout time.Duration) (*Device, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	c := &conversation{nc: nc.(*net.UnixConn)}
	dev := &Device{}
	if err := c.look(dev); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
			var b *Broken
			if errors.As(err, &b) {
				b.Err = ctx.Err() // the caller's
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					b.Err = fmt.Errorf("nothing more within %v", timeout)
				}
			}
		}
		return dev, err
	}
	return dev, nil
}
