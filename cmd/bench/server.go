package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// server serves one set-up. It owns a card, the servers of its GPUs, with a goroutine each, and the
// folder of their sockets. close ends all of them.
type server struct {
	setup     *setup
	endpoints []*endpoint

	running *parts.Running
	served  chan struct{} // closed when a whole card is no longer served
	cancel  context.CancelFunc
	dir     string
}

// endpoint is one GPU that a guest can attach to.
type endpoint struct {
	*serve.Endpoint
	socket string
	mapped bool // the device offers windows to map, so QEMU posts no write
	timer  *timer
}

// waitFree waits until no guest is attached.
func (e *endpoint) waitFree(ctx context.Context) {
	for e.Device.HasClient() {
		must(ctx.Err())
		time.Sleep(100 * time.Microsecond)
	}
}

// handled returns the number of traps and the time that the device took for all of them.
func (e *endpoint) handled() (reads, writes uint64, took time.Duration) {
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
	defer func() { t.ns.Add(int64(time.Since(at))) }()
	return t.Device.ReadRegion(index, off, p)
}

// WriteRegion implements vfiouser.Device.
func (t *timer) WriteRegion(index int, off uint64, p []byte) error {
	at := time.Now()
	defer func() { t.ns.Add(int64(time.Since(at))) }()
	return t.Device.WriteRegion(index, off, p)
}

// open starts to serve a set-up.
func open(setup *setup, size shape) (_ *server, err error) {
	s := &server{setup: setup}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set-up %s: %w", setup.name, err), s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "umbra-bench-"); err != nil {
		return nil, err
	}
	socket := func(i int) string { return filepath.Join(s.dir, fmt.Sprintf("gpu%d.sock", i)) }
	options, err := setup.options(size, socket)
	if err != nil {
		return nil, err
	}
	plan, err := parts.NewPlan(options, setup.whole, slog.New(slog.DiscardHandler))
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
		s.endpoints = append(s.endpoints, &endpoint{e, socket(i), setup.mapped(), timers[i]})
	}
	if setup.whole {
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

// waitFree waits until no guest is attached.
func (s *server) waitFree(ctx context.Context) {
	for _, e := range s.endpoints {
		e.waitFree(ctx)
	}
}

// close ends the set-up and disconnects its guests.
func (s *server) close() (err error) {
	if s.cancel != nil {
		s.cancel()
		<-s.served
	}
	if s.running != nil {
		err = s.running.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// reported are the aggregator's counters that are.
var reported = []string{
	"doorbells", "invalidates", "scans", "entries_examined", "entries_changed", "entries_rewritten", "map_scans", "map_pages_moved",
}

// counts reads the counters of all endpoints together. A counter that the set-up does not have is
// missing.
func (s *server) counts() map[string]float64 {
	out := map[string]float64{}
	for _, e := range s.endpoints {
		reads, writes, took := e.handled()
		out[unitTraps] += float64(reads + writes)
		out["reads/op"] += float64(reads)
		out["trap-ns/op"] += float64(took)
		stats := e.Server.Stats()
		out["wakes/op"] += float64(stats.Receives)
		for _, c := range stats.Commands {
			out["messages/op"] += float64(c.Messages)
			out["posted/op"] += float64(c.Posted)
		}
		if e.Virtual == nil {
			for _, r := range e.Device.Registers().Counts() {
				if r.Name == "NV_PFB_PRI_MMU_INVALIDATE" {
					out["invalidates/op"] += float64(r.Writes)
				}
			}
			continue
		}
		guest := e.Virtual.Guest.Stats()
		out["shadow-ns/op"] += float64(guest.Shadow.ShadowTime.Load())
		out["throttled-ns/op"] += float64(guest.Shadow.ThrottleTime.Load())
		for _, c := range guest.Counts() {
			if slices.Contains(reported, c.Name) && s.setup.has(c.Name) {
				out[strings.ReplaceAll(c.Name, "_", "-")+"/op"] += float64(c.N)
			}
		}
	}
	return out
}

// has reports whether a set-up has a counter. A full scan does not look for changes, and without
// mapping no page moves.
func (s *setup) has(count string) bool {
	switch count {
	case "entries_changed":
		return s.scan != "full"
	case "map_scans", "map_pages_moved":
		return s.mapped()
	}
	return true
}
