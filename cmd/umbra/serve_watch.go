package main

import (
	"log/slog"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// watched is the device with its traps counted by region, and a word in the log
// when clients come and go.
type watched struct {
	*serve.PassThrough
	log     *slog.Logger
	regions [vfiouser.NumRegions]struct{ reads, writes, bytes atomic.Uint64 }
}

func (w *watched) Attached(h *vfiouser.Host) {
	w.log.Info("client attached")
	w.PassThrough.Attached(h)
}

func (w *watched) Detached() {
	w.PassThrough.Detached()
	w.log.Info("client gone")
}

func (w *watched) ReadRegion(index int, off uint64, p []byte) error {
	w.regions[index].reads.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.PassThrough.ReadRegion(index, off, p)
}

func (w *watched) WriteRegion(index int, off uint64, p []byte) error {
	w.regions[index].writes.Add(1)
	w.regions[index].bytes.Add(uint64(len(p)))
	return w.PassThrough.WriteRegion(index, off, p)
}

var (
	_ vfiouser.Device      = (*watched)(nil)
	_ vfiouser.IRQObserver = (*watched)(nil)
)
