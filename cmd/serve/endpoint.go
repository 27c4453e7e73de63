package serve

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Endpoint is a device with the server in front of it: all that one guest needs.
type Endpoint struct {
	Name   string
	Device *Device
	Server vfiouser.Transport

	Virtual *Virtual // nil in pass-through
	Config  GPUConfig

	work func() []api.WorkCount // nothing in pass-through, or if the card does not count it
	end  func() (api.GPUReport, error)

	listening chan struct{} // closed when clients can attach
	notOurs   error         // why the socket has not the access that it should have
	cancel    func()        // stops serving
	served    chan struct{} // closed when it is no longer served
	err       error         // why, unless it was stopped
	stuck     bool          // its client's thread had not ended then

	options  atomic.Pointer[config.GPU] // in force, of a virtual GPU
	changing sync.Mutex                 // one change of them, or of the planted fault, at a time
	planted  func()                     // ends the planted fault; nil if there never was one. Guarded by changing

	logMu  sync.Mutex
	logged map[string]uint64 // counts that the log has
}

// NewEndpoint makes the endpoint of a device, served by a transport that by makes.
func NewEndpoint(name string, d *Device, by Make, opts vfiouser.Options) (*Endpoint, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{Name: name, Device: d, Config: GPUConfig{Device: GF100{}}, logged: make(map[string]uint64), listening: make(chan struct{})}
	e.work = func() []api.WorkCount { return nil }
	opts.Log = opts.Log.With("gpu", name)
	opts.Listening = func() {
		if a := e.Config.Access; a != nil {
			e.notOurs = a.apply(e.Config.Socket)
		}
		close(e.listening)
	}
	d.log = opts.Log
	var err error
	e.Server, err = by(d, opts)
	return e, err
}

// serve serves clients on a goroutine until stop, at the path in Config or on an inherited socket. It
// returns once clients can attach.
func (e *Endpoint) serve(from *Inherited) error {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.served = cancel, make(chan struct{})
	clients := func() error { return e.Server.ListenAndServe(ctx, e.Config.Socket) }
	if from != nil {
		clients = func() error { return from.serve(ctx, e.Server.(*vfiouser.Server)) }
		close(e.listening)
	}
	go func() {
		defer close(e.served)
		addProcessors(1)
		defer addProcessors(-1)
		err := clients()
		e.stuck = errors.Is(err, vfiouser.ErrStuck)
		if errors.Is(err, context.Canceled) || e.stuck && ctx.Err() != nil {
			return
		}
		e.err = err
		select {
		case <-e.listening:
			if err != nil {
				e.Device.log.Error("GPU is no longer served", "error", err)
			}
		default: // serve returns it
		}
	}()
	select {
	case <-e.listening:
		if e.notOurs != nil {
			e.stop()
		}
		return e.notOurs
	case <-e.served:
		return e.err
	}
}

// stop ends the serving, and disconnects the client. It reports whether the client's thread goes on.
func (e *Endpoint) stop() (stuck bool) {
	e.cancel()
	<-e.served
	return e.stuck
}
