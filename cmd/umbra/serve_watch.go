package main

import (
	"log/slog"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// device is what package serve makes of a card.
type device interface {
	vfiouser.Device
	vfiouser.IRQObserver
}

// watched is the device with its traps counted by region, and a word in the log
// when clients come and go.
type watched struct {
	device
	log     *slog.Logger
	regions [vfiouser.NumRegions]struct{ reads, writes, bytes atomic.Uint64 }
}

func (w *watched) Attached(h *vfiouser.Host) {
	w.log.Info("client attached")
	w.device.Attached(h)
}

func (w *watched) Detached() {
	w.device.Detached()
	w.log.Info("client gone")
}

func (w *watched) ReadRegion(index int, off uint64, p []byte) error {
	w.regions[index].reads.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.device.ReadRegion(index, off, p)
}

func (w *watched) WriteRegion(index int, off uint64, p []byte) error {
	w.regions[index].writes.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.device.WriteRegion(index, off, p)
}

var _ device = (*watched)(nil)
