package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Bed serves one set-up.
type Bed struct {
	Row       Row
	Endpoints []*Endpoint

	card   *soft.Card
	shared *serve.Shared // nil with the whole card
	served chan struct{} // closed when the server of the whole card has ended
	cancel context.CancelFunc
	dir    string
}

// Endpoint is one GPU that a guest can attach to.
type Endpoint struct {
	Socket string
	Gauge  *Gauge
	Mapped bool // the device offers windows to map, so QEMU posts no write

	server vfiouser.Transport
	guest  *aggregator.Guest // nil with the whole card
}

// Attach attaches a driver in this process as QEMU does: it maps the windows that the device
// offers, or posts its writes if there are none.
func (s *Endpoint) Attach(ctx context.Context, cfg guest.Config) (*guest.Guest, error) {
	cfg.Map = s.Mapped
	return guest.Attach(ctx, s.Socket, cfg)
}

// Open starts to serve a set-up.
func Open(row Row, shape Shape) (_ *Bed, err error) {
	b := &Bed{Row: row}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set-up %s: %w", row.Name, err), b.Close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "umbra-bench-"); err != nil {
		return nil, err
	}
	socket := func(i int) string { return filepath.Join(b.dir, fmt.Sprintf("gpu%d.sock", i)) }
	layer, err := row.layer(shape, socket)
	if err != nil {
		return nil, err
	}
	card, err := parts.Card(layer)
	if err != nil {
		return nil, err
	}
	by, opts, _, err := parts.Server(layer, row.Whole, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	gauged := func(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
		endpoint := &Endpoint{Socket: socket(len(b.Endpoints)), Gauge: newGauge(d.(serve.Observed)), Mapped: row.Mapped()}
		var err error
		if endpoint.server, err = by(endpoint.Gauge, o); err == nil {
			b.Endpoints = append(b.Endpoints, endpoint)
		}
		return endpoint.server, err
	}
	if b.card, err = soft.New(card); err != nil {
		return nil, err
	}
	if row.Whole {
		return b, b.serveWhole(gauged, opts)
	}
	limits, err := parts.Limits(layer)
	if err != nil {
		return nil, err
	}
	if b.shared, err = serve.NewShared(b.card, gauged, opts, limits); err != nil {
		return nil, err
	}
	for i := range layer.GPUs {
		cfg, err := parts.GPU(&layer.GPUs[i])
		if err != nil {
			return nil, err
		}
		l, err := vfiouser.Listen(socket(i))
		if err != nil {
			return nil, err
		}
		endpoint, err := b.shared.Add(cfg, l)
		if err != nil {
			return nil, err
		}
		b.Endpoints[i].guest = endpoint.Virtual.Guest
	}
	return b, nil
}

func (b *Bed) serveWhole(by serve.Make, opts vfiouser.Options) error {
	endpoint, err := serve.NewEndpoint("card", serve.NewPassThrough(b.card), b.card, by, opts)
	if err != nil {
		return err
	}
	l, err := vfiouser.Listen(b.Endpoints[0].Socket)
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	b.served = make(chan struct{})
	go func() {
		defer close(b.served)
		_ = serve.Listen(ctx, endpoint.Server, l) // an error ends the clients, which report it
	}()
	return nil
}

// WaitFree waits until no guest is attached.
func (b *Bed) WaitFree(ctx context.Context) error {
	for _, s := range b.Endpoints {
		select {
		case <-s.Gauge.Free():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close ends the set-up and disconnects its guests.
func (b *Bed) Close() error {
	var errs []error
	if b.cancel != nil {
		b.cancel()
		<-b.served
	}
	if b.shared != nil {
		errs = append(errs, b.shared.Close())
	}
	if b.card != nil {
		errs = append(errs, b.card.Close())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// aggregatorUnits are the units of the aggregator's counters that are reported.
var aggregatorUnits = map[string]string{
	"doorbells":         "doorbells/op",
	"invalidates":       invalidates,
	"scans":             "scans/op",
	"entries_examined":  "entries-examined/op",
	"entries_changed":   "entries-changed/op",
	"entries_rewritten": "entries-rewritten/op",
	"map_scans":         "map-scans/op",
	"map_pages_moved":   "map-pages-moved/op",
}

const invalidates = "invalidates/op"

// Counts reads the counters of all endpoints together. A counter that the set-up does not have is
// missing.
func (b *Bed) Counts() map[string]float64 {
	out := map[string]float64{}
	for _, s := range b.Endpoints {
		reads, writes := float64(s.Gauge.reads.Load()), float64(s.Gauge.writes.Load())
		out["traps/op"] += reads + writes
		out["reads/op"] += reads
		out["trap-ns/op"] += float64(s.Gauge.ns.Load())
		stats := s.server.Stats()
		out["wakes/op"] += float64(stats.Blocked)
		for _, c := range stats.Commands {
			out["messages/op"] += float64(c.Messages)
			out["posted/op"] += float64(c.Posted)
		}
		if s.guest == nil {
			for _, r := range b.card.Registers().Counts() {
				if r.Name == "NV_PFB_PRI_MMU_INVALIDATE" {
					out[invalidates] += float64(r.Writes)
				}
			}
			continue
		}
		out["shadow-ns/op"] += float64(s.guest.Stats().ShadowTime.Load())
		out["throttled-ns/op"] += float64(s.guest.Stats().ThrottleTime.Load())
		for _, c := range s.guest.Stats().Counts() {
			if unit, ok := aggregatorUnits[c.Name]; ok && b.Row.has(c.Name) {
				out[unit] += float64(c.N)
			}
		}
	}
	return out
}

// has reports whether a set-up has a counter. A full scan does not look for changes, and without
// mapping no page moves.
func (r *Row) has(count string) bool {
	switch count {
	case "entries_changed":
		return r.Scan != "full"
	case "map_scans", "map_pages_moved":
		return r.Mapped()
	}
	return true
}
