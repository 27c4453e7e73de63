package serve

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Observed is a device that observes interrupt masking, as [Device] does.
type Observed interface {
	vfiouser.Device
	vfiouser.IRQObserver
}

// Counted counts the traps of a device by region, logs clients that attach and
// detach, and refuses clients once its GPU is being removed.
type Counted struct {
	Observed
	log     *slog.Logger
	regions [vfiouser.NumRegions]struct{ reads, writes, bytes atomic.Uint64 }

	mu       sync.Mutex // guards the fields below
	attached bool       // from the start of a client's admission
	retired  bool
}

// Count wraps d.
func Count(d Observed, log *slog.Logger) *Counted { return &Counted{Observed: d, log: log} }

// HasClient reports whether a client is attached.
func (w *Counted) HasClient() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attached
}

// Retire refuses clients from now on. While a client is attached or being admitted
// it does nothing and returns false, unless it is forced.
func (w *Counted) Retire(force bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = w.retired || force || !w.attached
	return w.retired
}

var errRetired = errors.New("the GPU is being removed")

// Admit implements vfiouser.Admitter.
func (w *Counted) Admit() error {
	w.mu.Lock()
	w.attached = !w.retired
	admitted := w.attached
	w.mu.Unlock()
	if !admitted {
		return errRetired
	}
	admitted = false
	defer func() { // also if the device panics
		if !admitted {
			w.leave()
		}
	}()
	err := vfiouser.Admit(w.Observed)
	admitted = err == nil
	return err
}

// Dismissed implements vfiouser.Admitter.
func (w *Counted) Dismissed() {
	vfiouser.Dismiss(w.Observed)
	w.leave()
}

func (w *Counted) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attached = false
}

// Attached implements vfiouser.Device.
func (w *Counted) Attached(h *vfiouser.Host) {
	w.log.Info("client attached")
	w.Observed.Attached(h)
}

// Detached implements vfiouser.Device.
func (w *Counted) Detached() {
	w.Observed.Detached()
	w.leave()
	w.log.Info("client detached")
}

// ReadRegion implements vfiouser.Device.
func (w *Counted) ReadRegion(index int, off uint64, p []byte) error {
	w.regions[index].reads.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.Observed.ReadRegion(index, off, p)
}

// WriteRegion implements vfiouser.Device.
func (w *Counted) WriteRegion(index int, off uint64, p []byte) error {
	w.regions[index].writes.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.Observed.WriteRegion(index, off, p)
}

var regionNames = [vfiouser.NumRegions]string{
	vfiouser.RegionBAR0: "BAR0", vfiouser.RegionBAR1: "BAR1", vfiouser.RegionBAR2: "BAR2",
	vfiouser.RegionBAR3: "BAR3", vfiouser.RegionBAR4: "BAR4", vfiouser.RegionBAR5: "BAR5",
	vfiouser.RegionROM: "ROM", vfiouser.RegionConfig: "configuration", vfiouser.RegionVGA: "VGA",
}

// Traps lists the regions that were accessed.
func (w *Counted) Traps() (out []api.RegionCount) {
	for i := range w.regions {
		g := &w.regions[i]
		n := api.RegionCount{Region: regionNames[i], Reads: g.reads.Load(), Writes: g.writes.Load(), Bytes: g.bytes.Load()}
		if n.Reads+n.Writes > 0 {
			out = append(out, n)
		}
	}
	return out
}
