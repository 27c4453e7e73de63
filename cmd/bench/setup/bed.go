package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

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
	Mapped bool // the device offers windows to map, so that no write is posted

	server vfiouser.Transport
	guest  *aggregator.Guest // nil with the whole card
}

// Attach has a driver in this process attach as QEMU does: it maps what the device
// offers, and posts its writes if that is nothing.
func (s *Seat) Attach(ctx context.Context, cfg guest.Config) (*guest.Guest, error) {
	cfg.Map = s.Mapped
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
	by, opts, _, err := parts.Server(&layer, row.Whole, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	gauged := func(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
		seat := &Seat{Socket: socket(len(b.Seats)), Gauge: newGauge(d.(serve.Observed)), Mapped: row.Mapped()}
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
	limits, err := parts.Limits(&layer)
	if err != nil {
		return nil, err
	}
	if b.shared, err = serve.NewSharedWith(b.card, gauged, opts, limits); err != nil {
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
	seat, err := serve.NewEndpoint("card", serve.NewPassThrough(b.card), b.card, by, opts)
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

// Ahead changes how much of short requests may be on the card besides the one whose turn
// it is. The bed has a scheduler.
func (b *Bed) Ahead(d time.Duration) error {
	if b.shared == nil {
		return aggregator.ErrNoScheduler
	}
	c, _ := b.shared.Schedule()
	if c == nil {
		return aggregator.ErrNoScheduler
	}
	c.Ahead = d
	return b.shared.SetSchedule(*c)
}

// Looks is how often the server looked for doorbells that are not trapped.
func (b *Bed) Looks() uint64 {
	if b.shared != nil {
		return b.shared.Poller().Looks.Load()
	}
	return b.card.Stats().Poller.Looks.Load()
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
	"doorbells":         report.Doorbells,
	"invalidates":       report.Invalidates,
	"scans":             report.Scans,
	"entries_examined":  report.Examined,
	"entries_changed":   report.Changed,
	"entries_rewritten": report.Rewritten,
	"map_scans":         report.MapScans,
	"map_pages_moved":   report.MapPages,
}

// invalidate is the register that a guest asks with.
const invalidate = "NV_PFB_PRI_MMU_INVALIDATE"

// Counts reads every counter there is, of all seats together.
func (b *Bed) Counts() map[string]float64 {
	out := map[string]float64{}
	for _, s := range b.Seats {
		out[report.Reads] += float64(s.Gauge.reads.Load())
		out[report.Writes] += float64(s.Gauge.writes.Load())
		out[report.TrapNS] += float64(s.Gauge.ns.Load())
		stats := s.server.Stats()
		out[report.Wakes] += float64(stats.Blocked)
		for _, c := range stats.Commands {
			out[report.Messages] += float64(c.Messages)
			out[report.Posted] += float64(c.Posted)
		}
		if s.guest == nil {
			for _, r := range b.card.Registers().Counts() {
				if r.Name == invalidate {
					out[report.Invalidates] += float64(r.Writes)
				}
			}
			continue
		}
		out[report.ShadowNS] += float64(s.guest.Stats().ShadowTime.Load())
		out[report.HeldNS] += float64(s.guest.Stats().ThrottleTime.Load())
		for _, c := range s.guest.Stats().Counts() {
			if name, ok := sources[c.Name]; ok && b.Row.has(name) {
				out[name] += float64(c.N)
			}
		}
	}
	return out
}
