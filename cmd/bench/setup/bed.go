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
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Bed is a set-up that serves.
type Bed struct {
	Row   Row
	Seats []*Seat

	card   *soft.Card
	shared *serve.Shared // nil with the whole card
	served chan struct{} // closed when the whole card's server has ended
	cancel context.CancelFunc
	dir    string
}

// Seat is one GPU that a guest can attach to.
type Seat struct {
	Socket string
	Gauge  *Gauge

	server vfiouser.Transport
	guest  *aggregator.Guest // nil with the whole card
}

// Attach has a driver in this process attach as QEMU does: it maps what the device
// offers, and posts its writes if that is nothing.
func (s *Seat) Attach(ctx context.Context, cfg guest.Config) (*guest.Guest, error) {
	for _, r := range s.Gauge.Regions() {
		cfg.Map = cfg.Map || r.Flags&vfiouser.RegionMmap != 0
	}
	return guest.Attach(ctx, s.Socket, cfg)
}

// Open brings a set-up into service.
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
	card, err := parts.Card(&layer)
	if err != nil {
		return nil, err
	}
	by, opts, _, err := parts.Server(&layer, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	gauged := func(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
		seat := &Seat{Socket: socket(len(b.Seats)), Gauge: newGauge(d.(serve.Observed))}
		var err error
		if seat.server, err = by(seat.Gauge, o); err == nil {
			b.Seats = append(b.Seats, seat)
		}
		return seat.server, err
	}
	if b.card, err = soft.New(card); err != nil {
		return nil, err
	}
	if row.Whole {
		return b, b.serveWhole(gauged, opts)
	}
	if b.shared, err = serve.NewShared(b.card, gauged, opts); err != nil {
		return nil, err
	}
	for i := range layer.Config.GPUs {
		cfg, err := parts.GPU(&layer.Config.GPUs[i])
		if err != nil {
			return nil, err
		}
		l, err := vfiouser.Listen(socket(i))
		if err != nil {
			return nil, err
		}
		seat, err := b.shared.Add(cfg, l)
		if err != nil {
			return nil, err
		}
		b.Seats[i].guest = seat.Virtual.Guest
	}
	return b, nil
}

func (b *Bed) serveWhole(by serve.Make, opts vfiouser.Options) error {
	seat, err := serve.NewSeat("card", serve.NewPassThrough(b.card), b.card, by, opts)
	if err != nil {
		return err
	}
	l, err := vfiouser.Listen(b.Seats[0].Socket)
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	b.served = make(chan struct{})
	go func() {
		defer close(b.served)
		_ = serve.Listen(ctx, seat.Server, l) // ends with Close, or the clients see that it has ended
	}()
	return nil
}

// WaitFree waits until no guest is attached to any seat.
func (b *Bed) WaitFree(ctx context.Context) error {
	for _, s := range b.Seats {
		select {
		case <-s.Gauge.Free():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close ends the set-up. Guests that are attached are cut off.
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

// sources are the aggregator's counters by what the report calls them.
var sources = map[string]string{
	"bells":            report.Doorbells,
	"invalidates":      report.Invalidates,
	"rebuilds":         report.Scans,
	"entries_examined": report.Examined,
}

// Counts reads every counter there is, of all seats together.
func (b *Bed) Counts() map[string]float64 {
	out := map[string]float64{}
	for _, s := range b.Seats {
		out[report.Reads] += float64(s.Gauge.reads.Load())
		out[report.Writes] += float64(s.Gauge.writes.Load())
		out[report.TrapNS] += float64(s.Gauge.ns.Load())
		for _, c := range s.server.Stats().Commands {
			out[report.Messages] += float64(c.Messages)
			out[report.Posted] += float64(c.Posted)
		}
		if s.guest == nil {
			continue
		}
		for _, c := range s.guest.Stats().Counts() {
			if name, ok := sources[c.Name]; ok {
				out[name] += float64(c.N)
			}
		}
	}
	return out
}
