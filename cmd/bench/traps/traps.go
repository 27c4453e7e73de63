// Package traps measures what an access to a trapped register costs: over the bare socket, and
// by a guest through QEMU. Several transports are measured by turns in one run, so that the
// machine's mood hits all of them, and the ratios of each round are taken before any median.
//
// Each transport has a software card of its own. Over the socket the caller's goroutine, on a
// locked thread, does what QEMU would; through QEMU one guest without a driver has all the cards
// at once. What was measured is counted by the device behind the transport: a figure whose
// accesses did not all arrive is an error.
//
// umbra bench traps prints the Report; whatever else measures may call Measure for one.
//
// Measure owns what it starts (cards, transports with their serving goroutines, machines), and
// has ended all of it when it returns. The package has no locks.
package traps

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Options say what to measure.
type Options struct {
	Transports []string  // names that serve.TransportNamed takes; with two, the second over the first is a ratio
	Rounds     int       // how often each figure is measured
	Count      int       // accesses a round, at least
	Guest      bool      // through QEMU too, which is fetched if it has not been
	Progress   io.Writer // lines for a person who waits; nil for none
}

// Report is what was measured.
type Report struct {
	Rounds  int      `json:"rounds"`
	Count   int      `json:"count"` // accesses a round
	Machine *Machine `json:"machine,omitempty"`
	Figures []Figure `json:"figures"`
	// NoGuest says why nothing was measured through QEMU.
	NoGuest string `json:"no_guest,omitempty"`
}

// Machine is what the guest ran on.
type Machine struct {
	QEMU   string `json:"qemu"`
	Accel  string `json:"accel"`
	Kernel string `json:"kernel"`
}

// Way is how an access takes to the device.
type Way string

// The ways.
const (
	Socket Way = "socket" // a client that does nothing else
	Guest  Way = "guest"  // a program in a guest, through QEMU
)

// Figure is one kind of access.
type Figure struct {
	Way    Way               `json:"way"`
	Access string            `json:"access"`
	NS     map[string]Spread `json:"ns"` // an access, by transport
	// Ratio is the second transport's time over the first one's, round by round; nil with one.
	Ratio *Spread `json:"ratio,omitempty"`
}

// Spread is the median of the rounds, with the least and the greatest.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

func spreadOf(values []float64) Spread {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return Spread{(s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]}
}

// Measure measures. Options are taken to be sensible: one transport and more, rounds and
// accesses.
func Measure(ctx context.Context, o Options) (*Report, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	dir, err := os.MkdirTemp("", "umbra-traps-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &Report{Rounds: o.Rounds, Count: o.Count}
	if err := o.overSocket(ctx, filepath.Join(dir, "socket"), r); err != nil {
		return nil, fmt.Errorf("over the bare socket: %w", err)
	}
	if !o.Guest {
		return r, nil
	}
	if err := o.throughGuest(ctx, filepath.Join(dir, "guest"), r); err != nil {
		return nil, fmt.Errorf("through QEMU: %w", err)
	}
	return r, nil
}

// figure measures one kind of access in rounds, the transports by turns.
func (o *Options) figure(ctx context.Context, way Way, access string, once func(transport int) (ns float64, err error)) (Figure, error) {
	values := make([][]float64, len(o.Transports))
	var ratios []float64
	for round := range o.Rounds {
		for k := range o.Transports {
			if ctx.Err() != nil {
				return Figure{}, ctx.Err()
			}
			i := (k + round) % len(o.Transports) // none is always the one behind the other
			ns, err := once(i)
			if err != nil {
				return Figure{}, fmt.Errorf("%s, %s: %w", o.Transports[i], access, err)
			}
			values[i] = append(values[i], ns)
		}
		if len(values) > 1 {
			n := len(values[0]) - 1
			ratios = append(ratios, values[1][n]/values[0][n])
		}
	}
	f := Figure{Way: way, Access: access, NS: map[string]Spread{}}
	for i, name := range o.Transports {
		f.NS[name] = spreadOf(values[i])
	}
	if len(ratios) > 0 {
		s := spreadOf(ratios)
		f.Ratio = &s
	}
	return f, nil
}
