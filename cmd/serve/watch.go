package serve

import (
	"log/slog"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// Observed is a device that hears of interrupt masking, as [Device] does.
type Observed interface {
	vfiouser.Device
	vfiouser.IRQObserver
}

// Watched is a device with its traps counted by region, and a word in the log
// when clients come and go.
type Watched struct {
	Observed
	log      *slog.Logger
	attached atomic.Bool
	regions  [vfiouser.NumRegions]struct{ reads, writes, bytes atomic.Uint64 }
}

// Watch puts the counting in front of d.
func Watch(d Observed, log *slog.Logger) *Watched { return &Watched{Observed: d, log: log} }

// HasClient tells whether a client is attached.
func (w *Watched) HasClient() bool { return w.attached.Load() }

// Admit implements vfiouser.Admitter.
func (w *Watched) Admit() error { return vfiouser.Admit(w.Observed) }

// Attached implements vfiouser.Device.
func (w *Watched) Attached(h *vfiouser.Host) {
	w.log.Info("client attached")
	w.attached.Store(true)
	w.Observed.Attached(h)
}

// Detached implements vfiouser.Device.
func (w *Watched) Detached() {
	w.Observed.Detached()
	w.attached.Store(false)
	w.log.Info("client gone")
}

// ReadRegion implements vfiouser.Device.
func (w *Watched) ReadRegion(index int, off uint64, p []byte) error {
	w.regions[index].reads.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.Observed.ReadRegion(index, off, p)
}

// WriteRegion implements vfiouser.Device.
func (w *Watched) WriteRegion(index int, off uint64, p []byte) error {
	w.regions[index].writes.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.Observed.WriteRegion(index, off, p)
}
