package serve

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Seat is a device, what counts its traps, and the server in front of it: all
// that one guest needs.
type Seat struct {
	Name   string
	Device *Watched
	Server vfiouser.Transport

	spin      atomic.Int64 // ns
	registers func() *mmio.Space
	guest     *aggregator.Guest // nil in pass-through
	account   *account          // nil in pass-through, or if the card keeps none
}

// NewSeat makes the seat of a device whose registers are those of r, served by a
// transport of by's making.
func NewSeat(name string, d Observed, r interface{ Registers() *mmio.Space }, by Make, opts vfiouser.Options) (*Seat, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Log = opts.Log.With("gpu", name)
	if l, ok := d.(interface{ LogTo(*slog.Logger) }); ok {
		l.LogTo(opts.Log)
	}
	w := Watch(d, opts.Log)
	server, err := by(w, opts)
	s := &Seat{Name: name, Device: w, Server: server, registers: r.Registers}
	s.spin.Store(int64(opts.Spin))
	return s, err
}

// Counts lists what a virtual GPU's guest asked for, what came of it, and which rules it or its
// client broke. In pass-through there are none.
func (s *Seat) Counts() []aggregator.Count {
	if s.guest == nil {
		return nil
	}
	v := s.Server.Stats()
	return append(s.guest.Stats().Counts(),
		aggregator.Count{Name: vfiouser.RuleDMARegions, N: v.RegionsRefused, Rule: true},
		aggregator.Count{Name: vfiouser.RuleDMAMappings, N: v.MappingsRefused, Rule: true},
		aggregator.Count{Name: vfiouser.RuleDMASizes, N: v.SizesRefused, Rule: true})
}

// SetSpin changes how long the server polls its socket before it blocks. A transport
// that cannot takes no notice.
func (s *Seat) SetSpin(d time.Duration) {
	s.spin.Store(int64(d))
	if t, ok := s.Server.(interface{ SetSpin(time.Duration) }); ok {
		t.SetSpin(d)
	}
}

// Spin is how long it does.
func (s *Seat) Spin() time.Duration { return time.Duration(s.spin.Load()) }

// Registers is the device's register space, for its counters.
func (s *Seat) Registers() *mmio.Space { return s.registers() }
