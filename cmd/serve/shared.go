package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// ErrAttached is why a GPU is not removed.
var ErrAttached = errors.New("a client is attached")

// Shared is a card that an aggregator shares among virtual GPUs, each served on a
// socket of its own. GPUs can be added and removed while it runs.
type Shared struct {
	card card.Registers // nil of a card without
	agg  *aggregator.Aggregator
	// Driver drives a card with registers. Tests look at what it keeps there.
	Driver *driver.Driver
	by     Make
	opts   vfiouser.Options
	log    *slog.Logger

	adding sync.Mutex // one Add at a time
	closed bool       // guarded by adding

	mu   sync.Mutex // guards list
	list []*Endpoint

	stopLog func()
}

// GPUConfig describes a virtual GPU.
type GPUConfig struct {
	Share   aggregator.GuestConfig // with its name
	Device  Chip                   // nil is a GF100
	Socket  string                 // where it is served; "" of an inherited connection
	From    *Inherited             // its socket, if the parent process opened it
	Access  *Access                // who may connect there; nil is this user alone
	Options config.GPU             // that describe it, for Server
}

// NewShared brings card c into service for virtual GPUs, each served by a
// transport that by makes. The card stays the caller's, and must outlive the Shared.
func NewShared(c card.Registers, by Make, opts vfiouser.Options, limits aggregator.Options, drive driver.Options) (*Shared, error) {
	gpu, err := driver.New(c, drive)
	if err != nil {
		return nil, err
	}
	s, err := ShareGPU(gpu, by, opts, limits)
	if err == nil {
		s.card, s.Driver = c, gpu
	}
	return s, err
}

// ShareGPU is NewShared for a GPU. The GPU belongs to the Shared, which closes it.
func ShareGPU(gpu card.GPU, by Make, opts vfiouser.Options, limits aggregator.Options) (*Shared, error) {
	agg, err := aggregator.New(gpu, limits)
	if err != nil {
		gpu.Close()
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Shared{agg: agg, by: by, opts: opts, log: opts.Log}
	s.stopLog = logEvents(s.log, s.GPUs)
	return s, nil
}

// Add makes a virtual GPU and serves it at its socket.
func (s *Shared) Add(cfg GPUConfig) (*Endpoint, error) {
	s.adding.Lock()
	defer s.adding.Unlock()
	if s.closed {
		return nil, errors.New("the server ends")
	}
	if s.Find(cfg.Share.Name) != nil {
		return nil, fmt.Errorf("GPU %s exists already", cfg.Share.Name)
	}
	if cfg.Device == nil {
		cfg.Device = GF100{}
	}
	v, err := NewVirtual(s.agg, cfg.Share, cfg.Device)
	if err != nil {
		return nil, err
	}
	e, err := NewEndpoint(cfg.Share.Name, v.Device, s.by, s.opts)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	e.Virtual, e.Config = v, cfg
	e.options.Store(&cfg.Options)
	if c, ok := s.card.(interface{ Stats() *soft.Stats }); ok {
		e.work = countWork(&c.Stats().Owners[v.Guest.Owner()])
	}
	e.end = sync.OnceValues(func() (api.GPUReport, error) { return s.end(e) })
	if err := e.serve(cfg.From); err != nil {
		return nil, errors.Join(err, e.Server.Close(), v.Close())
	}
	s.mu.Lock()
	s.list = append(s.list, e)
	s.mu.Unlock()
	return e, nil
}

// Aggregator is what shares the card, for tests of what guests cannot see.
func (s *Shared) Aggregator() *aggregator.Aggregator { return s.agg }

// GPUs lists the virtual GPUs in the order in which they were added.
func (s *Shared) GPUs() []*Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Find returns the GPU of that name, or nil.
func (s *Shared) Find(name string) *Endpoint {
	for _, e := range s.GPUs() {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Remove takes a virtual GPU out of service and gives its share back. While a
// client is attached it fails with ErrAttached, or, forced, disconnects the client.
// It returns what the GPU counted. Nothing else waits for it. With vfiouser.ErrStuck
// the GPU refuses clients, and leaves the list once its client's thread has ended.
func (e *Endpoint) Remove(force bool) (api.GPUReport, error) {
	if !e.Device.Retire(force) {
		return api.GPUReport{}, ErrAttached
	}
	return e.end()
}

// end stops serving. It reads the counters once the client is detached, and before
// it gives the share back that has them.
func (s *Shared) end(e *Endpoint) (api.GPUReport, error) {
	if e.stop() {
		go func() {
			for errors.Is(e.Server.Close(), vfiouser.ErrStuck) {
			}
			if _, err := s.release(e); err != nil {
				s.log.Error("GPU removed late", "gpu", e.Name, "error", err)
			}
		}()
		return api.GPUReport{}, vfiouser.ErrStuck
	}
	return s.release(e)
}

// release ends a GPU that is no longer served.
func (s *Shared) release(e *Endpoint) (api.GPUReport, error) {
	e.logEvents(s.log)
	r := e.Report()
	r.CardTime = cardTime(s.agg.Ledger(), e.Name)
	err := e.Virtual.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(x *Endpoint) bool { return x == e })
	return r, err
}

// Close ends all virtual GPUs and takes the card out of service. It disconnects
// clients. After vfiouser.ErrStuck the card is still in use: the process must end.
func (s *Shared) Close() error {
	s.adding.Lock()
	defer s.adding.Unlock()
	s.closed = true
	s.stopLog()
	list := s.GPUs()
	var errs []error
	for _, e := range list {
		e.cancel() // all at once, so that they do not wait for each other
	}
	for _, e := range list {
		if _, err := e.end(); err != nil {
			errs = append(errs, fmt.Errorf("GPU %s: %w", e.Name, err))
		}
	}
	if err := errors.Join(errs...); errors.Is(err, vfiouser.ErrStuck) {
		return err
	}
	return errors.Join(append(errs, s.agg.Close())...)
}
