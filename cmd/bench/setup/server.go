package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Server serves one set-up.
type Server struct {
	Row       Row
	Endpoints []*Endpoint

	running *parts.Running
	served  chan struct{} // closed when a whole card is no longer served
	cancel  context.CancelFunc
	dir     string
}

// Endpoint is one GPU that a guest can attach to.
type Endpoint struct {
	*serve.Endpoint
	Socket string
	Mapped bool // the device offers windows to map, so QEMU posts no write
	timer  *timer
}

// Attach attaches a driver in this process as QEMU does: it maps the windows that the device
// offers, or posts its writes if there are none.
func (e *Endpoint) Attach(ctx context.Context, cfg guest.Config) (*guest.Guest, error) {
	cfg.Map = e.Mapped
	return guest.Attach(ctx, e.Socket, cfg)
}

// WaitFree waits until no guest is attached.
func (e *Endpoint) WaitFree(ctx context.Context) error {
	for e.Device.HasClient() {
		select {
		case <-time.After(100 * time.Microsecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Handled returns the number of traps and the time that the device took for all of them.
func (e *Endpoint) Handled() (reads, writes uint64, took time.Duration) {
	for _, r := range e.Device.Traps() {
		reads += r.Reads
		writes += r.Writes
	}
	return reads, writes, time.Duration(e.timer.ns.Load())
}

// timer adds up the time that a device takes to handle traps. That costs two clock reads per trap,
// the same with every set-up.
type timer struct {
	*serve.Device
	ns atomic.Int64
}

// ReadRegion implements vfiouser.Device.
func (t *timer) ReadRegion(index int, off uint64, p []byte) error {
	at := time.Now()
	err := t.Device.ReadRegion(index, off, p)
	t.ns.Add(int64(time.Since(at)))
	return err
}

// WriteRegion implements vfiouser.Device.
func (t *timer) WriteRegion(index int, off uint64, p []byte) error {
	at := time.Now()
	err := t.Device.WriteRegion(index, off, p)
	t.ns.Add(int64(time.Since(at)))
	return err
}

// Open starts to serve a set-up.
func Open(row Row, shape Shape) (_ *Server, err error) {
	s := &Server{Row: row}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set-up %s: %w", row.Name, err), s.Close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "umbra-bench-"); err != nil {
		return nil, err
	}
	socket := func(i int) string { return filepath.Join(s.dir, fmt.Sprintf("gpu%d.sock", i)) }
	options, err := row.options(shape, socket)
	if err != nil {
		return nil, err
	}
	plan, err := parts.NewPlan(options, row.Whole, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	var timers []*timer
	made := plan.Make
	plan.Make = func(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
		t := &timer{Device: d.(*serve.Device)}
		timers = append(timers, t)
		return made(t, o)
	}
	var listeners []*net.UnixListener
	for i := range max(len(plan.GPUs), 1) {
		l, err := vfiouser.Listen(socket(i))
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
	}
	if s.running, err = plan.Start(listeners); err != nil {
		return nil, err
	}
	for i, e := range s.running.Endpoints() {
		s.Endpoints = append(s.Endpoints, &Endpoint{Endpoint: e, Socket: socket(i), Mapped: row.Mapped(), timer: timers[i]})
	}
	if row.Whole {
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		s.served = make(chan struct{})
		go func() {
			defer close(s.served)
			_ = serve.Listen(ctx, s.running.Whole.Server, listeners[0]) // an error ends the clients, which report it
		}()
	}
	return s, nil
}

// WaitFree waits until no guest is attached.
func (s *Server) WaitFree(ctx context.Context) error {
	for _, e := range s.Endpoints {
		if err := e.WaitFree(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the set-up and disconnects its guests.
func (s *Server) Close() error {
	var errs []error
	if s.cancel != nil {
		s.cancel()
		<-s.served
	}
	if s.running != nil {
		errs = append(errs, s.running.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
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
func (s *Server) Counts() map[string]float64 {
	out := map[string]float64{}
	for _, e := range s.Endpoints {
		reads, writes, took := e.Handled()
		out["traps/op"] += float64(reads + writes)
		out["reads/op"] += float64(reads)
		out["trap-ns/op"] += float64(took)
		stats := e.Server.Stats()
		out["wakes/op"] += float64(stats.Blocked)
		for _, c := range stats.Commands {
			out["messages/op"] += float64(c.Messages)
			out["posted/op"] += float64(c.Posted)
		}
		if e.Virtual == nil {
			for _, r := range e.Device.Registers().Counts() {
				if r.Name == "NV_PFB_PRI_MMU_INVALIDATE" {
					out[invalidates] += float64(r.Writes)
				}
			}
			continue
		}
		guest := e.Virtual.Guest.Stats()
		out["shadow-ns/op"] += float64(guest.Shadow.ShadowTime.Load())
		out["throttled-ns/op"] += float64(guest.Shadow.ThrottleTime.Load())
		for _, c := range guest.Counts() {
			if unit, ok := aggregatorUnits[c.Name]; ok && s.Row.has(c.Name) {
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
