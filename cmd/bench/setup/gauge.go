package setup

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Gauge counts the traps of a device and adds up the time that the device took to handle them.
// That costs two clock reads per trap, the same with every set-up.
type Gauge struct {
	serve.Observed
	reads, writes, ns atomic.Uint64

	mu   sync.Mutex
	free chan struct{} // closed while nobody is attached
}

func newGauge(d serve.Observed) *Gauge {
	g := &Gauge{Observed: d, free: make(chan struct{})}
	close(g.free)
	return g
}

// ReadRegion implements vfiouser.Device.
func (g *Gauge) ReadRegion(index int, off uint64, p []byte) error {
	at := time.Now()
	err := g.Observed.ReadRegion(index, off, p)
	g.ns.Add(uint64(time.Since(at)))
	g.reads.Add(1)
	return err
}

// WriteRegion implements vfiouser.Device.
func (g *Gauge) WriteRegion(index int, off uint64, p []byte) error {
	at := time.Now()
	err := g.Observed.WriteRegion(index, off, p)
	g.ns.Add(uint64(time.Since(at)))
	g.writes.Add(1)
	return err
}

// Attached implements vfiouser.Device.
func (g *Gauge) Attached(h *vfiouser.Host) {
	g.mu.Lock()
	g.free = make(chan struct{})
	g.mu.Unlock()
	g.Observed.Attached(h)
}

// Detached implements vfiouser.Device.
func (g *Gauge) Detached() {
	g.Observed.Detached()
	g.mu.Lock()
	close(g.free)
	g.mu.Unlock()
}

// Free returns a channel that is closed once nobody is attached.
func (g *Gauge) Free() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.free
}

// Handled returns the number of traps and the time that the device took for all of them.
func (g *Gauge) Handled() (n uint64, took time.Duration) {
	return g.reads.Load() + g.writes.Load(), time.Duration(g.ns.Load())
}
