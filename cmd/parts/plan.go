package parts

import (
	"errors"
	"log/slog"
	"net"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Plan is a server that was checked and has not started.
type Plan struct {
	Card  soft.Config
	GPUs  []serve.GPUConfig
	Make  serve.Make // makes the transport
	Lacks []string   // what the transport lacks that the native one has

	alone   bool
	windows passthrough.Config // with alone
	options vfiouser.Options
	limits  aggregator.Options
	driver  driver.Options
}

// NewPlan finds everything that is wrong with the options before anything starts. With alone one
// guest has the whole card.
func NewPlan(c *config.Config, alone bool, log *slog.Logger) (p *Plan, err error) {
	p = &Plan{alone: alone, driver: driver.Options{Timeout: c.Limits.CardTimeout}}
	if p.Card, err = card(c); err != nil {
		return nil, err
	}
	if err = p.server(c, log); err != nil {
		return nil, err
	}
	if p.limits, err = Limits(c); err != nil {
		return nil, err
	}
	p.windows = passthrough.Config{Map: c.Card.BARMap, Limits: p.limits.Map}
	for i := range c.GPUs {
		g, err := GPU(&c.GPUs[i])
		if err != nil {
			return nil, err
		}
		p.GPUs = append(p.GPUs, g)
	}
	return p, nil
}

// Scheduled reports whether the card has a scheduler.
func (p *Plan) Scheduled() bool { return p.limits.Scheduler != nil }

// Running is a card with what guests attach to.
type Running struct {
	Card   *soft.Card
	Whole  *serve.Endpoint // of a guest that has the whole card, else nil; the caller serves it
	Shared *serve.Shared   // of virtual GPUs, else nil

	events *serve.EventLogger // of Whole
}

// wholeName is the name of the endpoint of a whole card.
const wholeName = "card"

// Start makes the card, and its endpoint or virtual GPUs, each of which it serves on its listener.
// It closes the listeners if it fails.
func (p *Plan) Start(listeners []*net.UnixListener) (_ *Running, err error) {
	r := new(Running)
	defer func() {
		if err != nil {
			for _, l := range listeners {
				vfiouser.CloseListener(l)
			}
			err = errors.Join(err, r.Close())
		}
	}()
	if r.Card, err = soft.New(p.Card); err != nil {
		return nil, err
	}
	if p.alone {
		r.Whole, err = serve.NewEndpoint(wholeName, serve.NewPassThrough(r.Card, p.windows), p.Make, p.options)
		if err == nil {
			r.events = serve.NewEventLogger(p.options.Log, r.Endpoints)
		}
		return r, err
	}
	if r.Shared, err = serve.NewShared(r.Card, p.Make, p.options, p.limits, p.driver); err != nil {
		return nil, err
	}
	for _, cfg := range p.GPUs {
		l := listeners[0]
		listeners = listeners[1:]
		if _, err := r.Shared.Add(cfg, l); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Endpoints lists what guests attach to.
func (r *Running) Endpoints() []*serve.Endpoint {
	if r.Whole != nil {
		return []*serve.Endpoint{r.Whole}
	}
	return r.Shared.GPUs()
}

// Close ends the virtual GPUs and the card. After vfiouser.ErrStuck a client's thread still uses
// the card: the process must end.
func (r *Running) Close() error {
	var errs []error
	if r.events != nil {
		r.events.Close()
	}
	if r.Shared != nil {
		err := r.Shared.Close()
		if errors.Is(err, vfiouser.ErrStuck) {
			return err
		}
		errs = append(errs, err)
	}
	if r.Card != nil {
		errs = append(errs, r.Card.Close())
	}
	return errors.Join(errs...)
}
