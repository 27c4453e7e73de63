package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Errors of Shared.
var (
	ErrNoGPU    = errors.New("no such GPU")
	ErrAttached = errors.New("a client is attached")
)

// Shared is a card that an aggregator shares among virtual GPUs, each served on a
// socket of its own. GPUs come and go while it runs.
type Shared struct {
	card card.Card
	agg  *aggregator.Aggregator
	by   Make
	opts vfiouser.Options
	log  *slog.Logger

	admin sync.Mutex // one change of the list at a time

	mu   sync.Mutex // guards list
	list []*VirtualEndpoint

	teller *EventLogger // of what guests did
}

// VirtualEndpoint is a virtual GPU, served.
type VirtualEndpoint struct {
	*Endpoint
	Virtual *Virtual
	Config  GPUConfig

	cancel context.CancelFunc
	served chan struct{}

	timeMu sync.Mutex // guards time; the aggregator's locks are taken under it
	time   TimeShare
}

// GPUConfig describes a virtual GPU.
type GPUConfig struct {
	Share  aggregator.GuestConfig // with its name
	Device devmodel.Config
	Socket string         // for those who ask; Add is given the listener
	Kept   map[string]int // TimeShare.Kept, to begin with
}

// NewShared brings card c into service for virtual GPUs, each served by a
// transport of by's making. The card stays the caller's, and must outlive the Shared.
func NewShared(c card.Card, by Make, opts vfiouser.Options) (*Shared, error) {
	return NewSharedWith(c, by, opts, aggregator.Options{})
}

// NewSharedWith is NewShared with limits.
func NewSharedWith(c card.Card, by Make, opts vfiouser.Options, limits aggregator.Options) (*Shared, error) {
	agg, err := aggregator.NewWith(c, limits)
	if err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Shared{card: c, agg: agg, by: by, opts: opts, log: opts.Log}
	s.teller = NewEventLogger(s.log, s.seats)
	return s, nil
}

// Add makes a virtual GPU and serves it on l, which becomes the server's, also if
// Add fails.
func (s *Shared) Add(cfg GPUConfig, l *net.UnixListener) (*VirtualEndpoint, error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	if s.Find(cfg.Share.Name) != nil {
		l.Close()
		return nil, fmt.Errorf("GPU %s is there already", cfg.Share.Name)
	}
	v, err := NewVirtual(s.agg, cfg.Share, cfg.Device)
	if err != nil {
		l.Close()
		return nil, err
	}
	seat, err := NewEndpoint(cfg.Share.Name, v, v.GPU, s.by, s.opts)
	if err != nil {
		l.Close()
		return nil, errors.Join(err, v.Close())
	}
	seat.guest = v.Guest
	if c, ok := s.card.(accounts); ok {
		seat.account = openAccount(c, v.Guest.Owner())
	}
	vs := &VirtualEndpoint{Endpoint: seat, Virtual: v, Config: cfg, served: make(chan struct{}), time: TimeShare{cfg.Share.Share, cfg.Share.Processes, cfg.Kept}}
	ctx, cancel := context.WithCancel(context.Background())
	vs.cancel = cancel
	go func() {
		defer close(vs.served)
		if err := Listen(ctx, seat.Server, l); !errors.Is(err, context.Canceled) {
			s.log.Error("no longer served", "gpu", seat.Name, "error", err)
		}
	}()
	s.mu.Lock()
	s.list = append(s.list, vs)
	s.mu.Unlock()
	return vs, nil
}

// Aggregator is what shares the card, for tests that look at what guests do not see.
func (s *Shared) Aggregator() *aggregator.Aggregator { return s.agg }

// GPUs lists the virtual GPUs in the order in which they came.
func (s *Shared) GPUs() []*VirtualEndpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// seats lists what guests attach to.
func (s *Shared) seats() (out []*Endpoint) {
	for _, v := range s.GPUs() {
		out = append(out, v.Endpoint)
	}
	return out
}

// Find returns the GPU of that name, or nil.
func (s *Shared) Find(name string) *VirtualEndpoint {
	for _, v := range s.GPUs() {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Remove takes a virtual GPU out of service and gives its share back. While a
// client is attached it fails with ErrAttached, or, forced, cuts the client off.
// It returns what the GPU counted.
func (s *Shared) Remove(name string, force bool) (GPUReport, error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	v := s.Find(name)
	if v == nil {
		return GPUReport{}, ErrNoGPU
	}
	if !v.Device.Retire(force) {
		return GPUReport{}, ErrAttached
	}
	s.mu.Lock()
	s.list = slices.DeleteFunc(s.list, func(x *VirtualEndpoint) bool { return x == v })
	s.mu.Unlock()
	return s.end(v)
}

// end stops serving. Its counters are read when the client has gone and nothing
// can change them, and before the share that counts is given back.
func (s *Shared) end(v *VirtualEndpoint) (GPUReport, error) {
	v.cancel()
	<-v.served
	v.tell(s.log)
	r, err := v.Report()
	if t, ok := s.CardTimes()[v.Name]; ok {
		r.CardTime = &t
	}
	return r, errors.Join(err, v.Virtual.Close())
}

// Close ends all virtual GPUs and takes the card out of service. Clients that are
// attached are cut off.
func (s *Shared) Close() error {
	s.admin.Lock()
	defer s.admin.Unlock()
	s.teller.Close()
	s.mu.Lock()
	list := s.list
	s.list = nil
	s.mu.Unlock()
	var errs []error
	for _, v := range list {
		v.cancel() // all at once: they need not wait for each other
	}
	for _, v := range list {
		_, err := s.end(v)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.agg.Close())...)
}

// SetRuleInterval says how often the log hears of what guests did at most: [EventLogger.SetInterval].
func (s *Shared) SetRuleInterval(d time.Duration) { s.teller.SetInterval(d) }
