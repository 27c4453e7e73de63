package serve

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Endpoint is a device with the server in front of it: all that one guest needs.
type Endpoint struct {
	Name   string
	Device *Device
	Server vfiouser.Transport

	// Of a virtual GPU; nil, or zero, in pass-through.
	Virtual *Virtual
	Config  GPUConfig

	account *account      // nil in pass-through, or if the card keeps none
	cancel  func()        // stops serving a virtual GPU
	served  chan struct{} // closed when it is no longer served
	stuck   bool          // its client's thread had not ended then
	end     func() (api.GPUReport, error)

	options  atomic.Pointer[config.GPU] // in force
	changing sync.Mutex                 // one change of them at a time

	logMu  sync.Mutex
	logged map[string]uint64 // counts that the log has
}

// NewEndpoint makes the endpoint of a device, served by a transport that by makes.
func NewEndpoint(name string, d *Device, by Make, opts vfiouser.Options) (*Endpoint, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Log = opts.Log.With("gpu", name)
	d.log = opts.Log
	server, err := by(d, opts)
	return &Endpoint{Name: name, Device: d, Server: server, logged: make(map[string]uint64)}, err
}

// Options are those of a virtual GPU that are in force.
func (e *Endpoint) Options() *config.GPU { return e.options.Load() }

// SetCardTime changes a virtual GPU's part of the card's time. Without a scheduler
// it fails with gate.ErrNoScheduler.
func (e *Endpoint) SetCardTime(n sched.NodeConfig) error { return e.Virtual.Guest.SetShare(n) }
