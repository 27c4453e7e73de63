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

// Watched is a device with its traps counted by region, and a word in the log
// when clients come and go.
type Watched struct {
	Observed
	log     *slog.Logger
	regions [vfiouser.NumRegions]struct{ reads, writes, bytes atomic.Uint64 }

	mu       sync.Mutex // guards what follows
	attached bool       // from when the client is being admitted
	retired  bool
}

// Watch puts the counting in front of d.
func Watch(d Observed, log *slog.Logger) *Watched { return &Watched{Observed: d, log: log} }

// HasClient tells whether a client is attached.
func (w *Watched) HasClient() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attached
}

// Retire has no client admitted from now on. If one is there, or just being admitted,
// it does nothing and returns false, unless it is forced.
func (w *Watched) Retire(force bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = w.retired || force || !w.attached
	return w.retired
}

var errRetired = errors.New("the GPU is being removed")

// Admit implements vfiouser.Admitter.
func (w *Watched) Admit() (err error) {
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
func (w *Watched) Dismissed() {
	vfiouser.Dismiss(w.Observed)
	w.leave()
}

// take notes a client, unless there is to be none.
func (w *Watched) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attached = !w.retired
	return w.attached
}

func (w *Watched) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attached = false
}

// Attached implements vfiouser.Device.
func (w *Watched) Attached(h *vfiouser.Host) {
	w.log.Info("client attached")
	w.Observed.Attached(h)
}

// Detached implements vfiouser.Device.
func (w *Watched) Detached() {
	w.Observed.Detached()
	w.leave()
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
