package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// server serves one set-up. It owns a card with the servers of its GPUs, the folder of their sockets, and
// the guests of this process. close ends all of them.
type server struct {
	ctx     context.Context // ends waits
	setup   *setup
	gpus    int
	state   any          // of the case's prepare
	trapped atomic.Int64 // nanoseconds in which the devices handled traps
	guests  []*guest.Guest

	running *serve.Server
	dir     string
}

// socket is where a GPU is served.
func (s *server) socket(gpu int) string { return filepath.Join(s.dir, fmt.Sprintf("gpu%d.sock", gpu)) }

// timer adds up the time that a device takes to handle traps. That costs two clock reads per trap,
// the same with every set-up.
type timer struct {
	*serve.Device
	ns *atomic.Int64
}

// ReadRegion implements vfiouser.Device.
func (t timer) ReadRegion(index int, off uint64, p []byte) error {
	at := time.Now()
	defer func() { t.ns.Add(int64(time.Since(at))) }()
	return t.Device.ReadRegion(index, off, p)
}

// WriteRegion implements vfiouser.Device.
func (t timer) WriteRegion(index int, off uint64, p []byte) error {
	at := time.Now()
	defer func() { t.ns.Add(int64(time.Since(at))) }()
	return t.Device.WriteRegion(index, off, p)
}

// open starts to serve a set-up. ctx bounds waits; close ends the service.
func open(ctx context.Context, setup *setup, size shape) (_ *server, err error) {
	s := &server{ctx: ctx, setup: setup, gpus: size.gpus}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set-up %s: %w", setup.name, err), s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "umbra-bench-"); err != nil {
		return nil, err
	}
	options, err := setup.options(size, s.socket)
	if err != nil {
		return nil, err
	}
	plan, err := serve.NewPlan(options, setup.whole, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	made := plan.Make
	plan.Make = func(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
		return made(timer{d.(*serve.Device), &s.trapped}, o)
	}
	s.running, err = plan.Start(nil)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// attach attaches a driver in this process. It maps the windows that the device offers, as QEMU does,
// or posts its writes if there are none.
func (s *server) attach(gpu int, ram uint64) *guest.Guest {
	g := get(guest.Attach(s.ctx, s.socket(gpu), guest.Config{RAM: ram, Map: s.setup.mapped(), Timeout: patience}))
	s.guests = append(s.guests, g)
	settle(g)
	return g
}

// leave has all guests leave, and waits until others can attach.
func (s *server) leave() (err error) {
	for _, g := range s.guests {
		err = errors.Join(err, g.Close())
	}
	s.guests = nil
	for _, e := range s.running.Endpoints() {
		for e.Device.HasClient() && s.ctx.Err() == nil {
			time.Sleep(100 * time.Microsecond)
		}
	}
	return errors.Join(err, s.ctx.Err())
}

// close ends the set-up and disconnects its guests.
func (s *server) close() (err error) {
	for _, g := range s.guests {
		err = errors.Join(err, g.Close())
	}
	if s.running != nil {
		err = errors.Join(err, s.running.Close())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// reported are the aggregator's counters that are.
var reported = []string{
	"doorbells", "invalidates", "scans", "entries_examined", "entries_changed", "entries_rewritten", "map_scans", "map_pages_moved",
}

// counts reads the counters of all GPUs together. A counter that the set-up does not have is missing.
func (s *server) counts() map[string]float64 {
	out := map[string]float64{unitTrapNS: float64(s.trapped.Load())}
	for _, e := range s.running.Endpoints() {
		for _, r := range e.Device.Traps() {
			out[unitTraps] += float64(r.Reads + r.Writes)
			out["reads/op"] += float64(r.Reads)
		}
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
