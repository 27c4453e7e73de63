package serve

import (
	"cmp"
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
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
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
	list []*VirtualSeat

	ruleTick *time.Ticker  // when the log hears of broken rules
	endRules chan struct{} // closed by Close
	rules    sync.WaitGroup
}

// VirtualSeat is a virtual GPU, served.
type VirtualSeat struct {
	*Seat
	Virtual *Virtual
	Config  GPUConfig

	cancel context.CancelFunc
	served chan struct{}

	logMu  sync.Mutex
	logged map[string]uint64 // counts as the log has them

	timeMu sync.Mutex // guards time; the aggregator's locks are taken under it
	time   TimeShare
}

// GPUConfig describes a virtual GPU.
type GPUConfig struct {
	Share  aggregator.GuestConfig // with its name
	Device devmodel.Config
	Spin   time.Duration  // vfiouser.Options.Spin; what the Shared's options say is for others
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
	s := &Shared{card: c, agg: agg, by: by, opts: opts, log: opts.Log, ruleTick: time.NewTicker(ruleInterval), endRules: make(chan struct{})}
	s.rules.Go(s.watchRules)
	return s, nil
}

// Add makes a virtual GPU and serves it on l, which becomes the server's, also if
// Add fails.
func (s *Shared) Add(cfg GPUConfig, l *net.UnixListener) (*VirtualSeat, error) {
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
	opts := s.opts
	opts.Spin = cfg.Spin
	seat, err := NewSeat(cfg.Share.Name, v, v.GPU, s.by, opts)
	if err != nil {
		l.Close()
		return nil, errors.Join(err, v.Close())
	}
	seat.guest = v.Guest
	if c, ok := s.card.(accounts); ok {
		seat.account = openAccount(c, v.Guest.Owner())
	}
	vs := &VirtualSeat{Seat: seat, Virtual: v, Config: cfg, served: make(chan struct{}), logged: make(map[string]uint64), time: TimeShare{cfg.Share.Share, cfg.Share.Processes, cfg.Kept}}
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

// Poller counts what was done to find doorbells that are not trapped.
func (s *Shared) Poller() *doorbell.Stats { return s.agg.Poller() }

// GPUs lists the virtual GPUs in the order in which they came.
func (s *Shared) GPUs() []*VirtualSeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Find returns the GPU of that name, or nil.
func (s *Shared) Find(name string) *VirtualSeat {
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
	s.list = slices.DeleteFunc(s.list, func(x *VirtualSeat) bool { return x == v })
	s.mu.Unlock()
	return s.end(v)
}

// end stops serving. Its counters are read when the client has gone and nothing
// can change them, and before the share that counts is given back.
func (s *Shared) end(v *VirtualSeat) (GPUReport, error) {
	v.cancel()
	<-v.served
	s.logRules(v)
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
	close(s.endRules)
	s.rules.Wait()
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

// SetRuleInterval says how often the log hears of broken rules at most, per GPU and
// rule; it is 1 s if nobody says so. It waits for nobody, be it that the log takes its
// time, or that the Shared is closed.
func (s *Shared) SetRuleInterval(d time.Duration) { s.ruleTick.Reset(d) }

// ruleInterval is how often if nobody says so.
const ruleInterval = time.Second

// watchRules tells the log which rules guests broke. It looks at the counters
// now and then, so that a guest that breaks a million rules in a second makes one
// line, and no trap ever waits for the log.
func (s *Shared) watchRules() {
	defer s.ruleTick.Stop()
	for {
		select {
		case <-s.ruleTick.C:
			for _, v := range s.GPUs() {
				s.logRules(v)
			}
		case <-s.endRules:
			return
		}
	}
}

// logRules tells the log what is new since it was told last: rules that the guest broke,
// and why what its client has mapped is not what the guest is to see there.
func (s *Shared) logRules(v *VirtualSeat) {
	v.logMu.Lock()
	defer v.logMu.Unlock()
	for _, c := range v.guest.Stats().Counts() {
		switch {
		case c.Rule:
			if n := v.newsLocked(c.Name, c.N); n > 0 {
				s.log.Warn("guest broke a rule", "gpu", v.Name, "rule", c.Name, "times", n, "swallowed", n-1, "in_all", c.N)
			}
		case c.Name == "scrub_failures":
			if n := v.newsLocked(c.Name, c.N); n > 0 {
				s.log.Error("a guest's memory could not be cleared; its GPU takes no client until it is", "gpu", v.Name, "times", n, "in_all", c.N)
			}
		case c.Name == "safe_modes":
			if n := v.newsLocked(c.Name, c.N); n > 0 {
				s.log.Warn("guest was put into safe mode", "gpu", v.Name, "times", n, "now", cmp.Or(v.guest.SafeMode(), "out of it again"))
			}
		}
	}
	for _, c := range v.guest.Stats().Mapped.Counts() {
		if c.Why == "" {
			continue
		}
		if n := v.newsLocked(c.Name, c.N); n > 0 {
			s.log.Warn("a mapped window is not exact", "gpu", v.Name, "count", c.Name, "why", c.Why, "times", n, "swallowed", n-1, "in_all", c.N)
		}
	}
}

// newsLocked is by how much a counter is more than what the log has of it. VirtualSeat.logMu
// is held.
func (v *VirtualSeat) newsLocked(name string, n uint64) uint64 {
	more := n - v.logged[name]
	v.logged[name] = n
	return more
}
