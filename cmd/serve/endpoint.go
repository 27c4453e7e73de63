package serve

import (
	"log/slog"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Endpoint is a device, what counts its traps, and the server in front of it: all
// that one guest needs.
type Endpoint struct {
	Name   string
	Device *Counted
	Server vfiouser.Transport

	registers func() *mmio.Space
	guest     *aggregator.Guest // nil in pass-through
	account   *account          // nil in pass-through, or if the card keeps none
	shown     *homes.Stats      // what was done for mapped windows; nil if the device does not say

	logMu  sync.Mutex
	logged map[string]uint64 // counts as the log has them
}

// NewEndpoint makes the seat of a device whose registers are those of r, served by a
// transport of by's making.
func NewEndpoint(name string, d Observed, r interface{ Registers() *mmio.Space }, by Make, opts vfiouser.Options) (*Endpoint, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Log = opts.Log.With("gpu", name)
	if l, ok := d.(interface{ LogTo(*slog.Logger) }); ok {
		l.LogTo(opts.Log)
	}
	w := Count(d, opts.Log)
	server, err := by(w, opts)
	s := &Endpoint{Name: name, Device: w, Server: server, registers: r.Registers, logged: make(map[string]uint64)}
	if shows, ok := d.(interface{ Shown() *homes.Stats }); ok {
		s.shown = shows.Shown()
	}
	return s, err
}

// Counts lists what a guest asked for, what came of it, and which rules it or its client
// broke. In pass-through there is what was done for mapped windows, and rules of its memory;
// the rest is the card's.
func (s *Endpoint) Counts() (list []aggregator.Count) {
	switch {
	case s.guest != nil:
		list = s.guest.Stats().Counts()
	case s.shown != nil:
		for _, c := range s.shown.Counts() {
			list = append(list, aggregator.Count{Name: c.Name, N: c.N})
		}
	}
	v := s.Server.Stats()
	return append(list,
		aggregator.Count{Name: vfiouser.RuleDMARegions, N: v.RegionsRefused, Rule: true},
		aggregator.Count{Name: vfiouser.RuleDMAMappings, N: v.MappingsRefused, Rule: true},
		aggregator.Count{Name: vfiouser.RuleDMASizes, N: v.SizesRefused, Rule: true})
}

// Inexact is a mapped window that does not show the guest what it should.
type Inexact struct {
	Name   string `json:"name"`   // of the count
	Window string `json:"window"` // as bar-map has it
	N      uint64 `json:"n"`
	Why    string `json:"why"`
	Then   string `json:"then"` // what that means for the guest
}

// Inexact lists which mapped windows were not exact, and for what reasons, but for what is so
// for each client when it comes.
func (s *Endpoint) Inexact() (list []Inexact) {
	if s.shown == nil {
		return nil
	}
	for _, c := range s.shown.Counts() {
		for k, n := range c.In {
			if n > 0 && c.Why != "" && !c.Usual {
				list = append(list, Inexact{c.Name, homes.Kind(k).String(), n, c.Why, c.Then})
			}
		}
	}
	return list
}

// Registers is the device's register space, for its counters.
func (s *Endpoint) Registers() *mmio.Space { return s.registers() }
