package serve

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// Observed is a device that hears of interrupt masking, as [Device] does.
type Observed interface {
	vfiouser.Device
	vfiouser.IRQObserver
}

// Counted is a device with its traps counted by region, and a word in the log
// when clients come and go.
type Counted struct {
	Observed
	log     *slog.Logger
	regions [vfiouser.NumRegions]struct{ reads, writes, bytes atomic.Uint64 }

	mu       sync.Mutex // guards what follows
	attached bool       // from when the client is being admitted
	retired  bool
}

// Watch puts the counting in front of d.
func Count(d Observed, log *slog.Logger) *Counted { return &Counted{Observed: d, log: log} }

// HasClient tells whether a client is attached.
func (w *Counted) HasClient() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attached
}

// Retire has no client admitted from now on. If one is there, or just being admitted,
// it does nothing and returns false, unless it is forced.
func (w *Counted) Retire(force bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = w.retired || force || !w.attached
	return w.retired
}

var errRetired = errors.New("the GPU is being removed")

// Admit implements vfiouser.Admitter.
func (w *Counted) Admit() (err error) {
	if !w.take() {
		return errRetired
	}
	admitted := false
	defer func() {
		if !admitted {
			w.leave()
		}
	}()
	err = vfiouser.Admit(w.Observed)
	admitted = err == nil
	return err
}

// Dismissed implements vfiouser.Admitter.
func (w *Counted) Dismissed() {
	vfiouser.Dismiss(w.Observed)
	w.leave()
}

// take notes a client, unless there is to be none.
func (w *Counted) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attached = !w.retired
	return w.attached
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
	w.log.Info("client gone")
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
