package serve

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Kinds of faults that an operator can plant.
const (
	lostInterrupt    = "lost-interrupt"
	lateInterrupt    = "late-interrupt"
	hungEngine       = "hung-engine"
	translationFault = "translation-fault"
	offBus           = "off-bus"
)

// InjectKinds lists them.
var InjectKinds = []string{lostInterrupt, lateInterrupt, hungEngine, translationFault, offBus}

// mostInjected bounds how long a fault stays.
const mostInjected = time.Hour

// maxIRQs is how many interrupts a device has, by their numbers.
const maxIRQs = 8

// injection is a planted fault of the device itself.
type injection struct {
	kind  string
	delay time.Duration
	left  atomic.Int64         // how often it happens yet
	late  [maxIRQs]atomic.Bool // which interrupts wait for their delay
	over  func()               // ends it; it may wait
}

// use reports whether the fault happens now, if it is one of these kinds.
func (i *injection) use(kind string) bool {
	if i == nil || i.kind != kind {
		return false
	}
	left := i.left.Add(-1)
	if left == 0 {
		go i.over()
	}
	return left >= 0
}

// injection returns the planted fault, nil if there is none.
func (d *Device) injection() *injection {
	if w := d.watch.Load(); w != nil {
		return w.fault
	}
	return nil
}

// interrupt signals an interrupt, unless a planted fault loses or delays it.
func (d *Device) interrupt(client *vfiouser.Host, irq int) {
	switch i := d.injection(); {
	case i.use(lostInterrupt):
	case i.use(lateInterrupt):
		if waits := &i.late[irq%maxIRQs]; waits.CompareAndSwap(false, true) { // more of the same are one
			time.AfterFunc(i.delay, func() { waits.Store(false); client.Trigger(irq, 0) })
		}
	default:
		client.Trigger(irq, 0)
	}
}

// Inject implements api.Backend.
func (s *Server) Inject(name string, r api.InjectRequest) (out api.Injected, err error) {
	e, err := s.find(name)
	if err != nil {
		return out, err
	}
	if !s.Config.Server.Inject {
		return out, api.Conflict("server.inject", "false", "this server plants no faults; start it with --inject, or with server.inject: true in its configuration file")
	}
	if err := e.checkInjection(&r); err != nil {
		return out, err
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	e.inject(r)
	return api.Injected{GPU: name, InjectRequest: r}, nil
}

// checkInjection completes a request.
func (e *Endpoint) checkInjection(r *api.InjectRequest) error {
	switch of := r.Kind == hungEngine || r.Kind == translationFault; {
	case r.Kind == "none":
		return nil
	case !slices.Contains(InjectKinds, r.Kind):
		return api.Invalid("kind", r.Kind, "no such kind of fault; %s, or none to end one", config.Known(r.Kind, InjectKinds))
	case of && e.Virtual == nil:
		return api.Conflict("kind", r.Kind, "the whole card has no %s to plant; only a virtual GPU has", r.Kind)
	case r.Kind == hungEngine && r.Count != 0:
		return api.Invalid("count", fmt.Sprint(r.Count), "a hung engine ends by time; give --for")
	case r.For < 0 || r.For > mostInjected:
		return api.Invalid("for", r.For.String(), "must be up to %v", mostInjected)
	case r.Delay < 0 || r.Delay > mostInjected || r.Delay > 0 && r.Kind != lateInterrupt:
		return api.Invalid("delay", r.Delay.String(), "must be up to %v, for a %s alone", mostInjected, lateInterrupt)
	case r.Count > 1<<31:
		return api.Invalid("count", fmt.Sprint(r.Count), "must be up to %d", 1<<31)
	}
	if r.Kind == lateInterrupt {
		r.Delay = cmp.Or(r.Delay, 100*time.Millisecond)
	}
	if r.For == 0 {
		r.For = mostInjected
		if r.Count == 0 {
			r.For = 10 * time.Second
		}
	}
	return nil
}

// inject plants a fault in place of an earlier one. Endpoint.changing is held.
func (e *Endpoint) inject(r api.InjectRequest) {
	if e.planted != nil {
		e.planted()
	}
	if r.Kind == "none" {
		return
	}
	log := e.Device.log
	i := &injection{kind: r.Kind, delay: r.Delay}
	i.left.Store(int64(cmp.Or(r.Count, 1<<62)))
	plan := aggregator.Planned{Hung: r.Kind == hungEngine}
	if r.Kind == translationFault {
		plan.Faults = int(min(cmp.Or(r.Count, 1<<31), 1<<31))
	}
	over := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(over)
		e.Device.plant(nil, i)
		if e.Virtual != nil {
			e.Virtual.Guest.Plan(aggregator.Planned{})
		}
		log.Warn("a planted fault ended", "kind", r.Kind)
	})
	i.over, plan.Over, e.planted = end, end, end
	e.Device.plant(i, nil)
	if e.Virtual != nil {
		e.Virtual.Guest.Plan(plan)
	}
	log.Warn("a fault is planted", "kind", r.Kind, "for", r.For, "count", r.Count, "delay", r.Delay)
	go func() {
		t := time.NewTimer(r.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-e.served:
		case <-over:
		}
		end()
	}()
}
