package serve

import (
	"log/slog"

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
	return &Seat{Name: name, Device: w, Server: server, registers: r.Registers}, err
}

// Registers is the device's register space, for its counters.
func (s *Seat) Registers() *mmio.Space { return s.registers() }
