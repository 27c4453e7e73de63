package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// served is a running server: a card, and either its one endpoint in pass-through or
// virtual GPUs.
type served struct {
	cfg   *config.Config // at the start
	alone bool           // one guest has the whole card
	began time.Time
	out   stdout
	log   *slog.Logger

	cardConfig soft.Config
	by         serve.Make // makes the transport
	options    vfiouser.Options
	lacks      []string // what the transport lacks that the native one has
	gpuConfigs []serve.GPUConfig
	limits     aggregator.Options

	control   net.Listener        // nil if there is none
	at        *socket             // in pass-through
	listeners []*net.UnixListener // of virtual GPUs that are not yet served

	card   *soft.Card
	whole  *serve.Endpoint    // in pass-through
	events *serve.EventLogger // of it
	shared *serve.Shared      // otherwise

	mu sync.Mutex // one change of GPUs or of the scheduler at a time

	nowMu    sync.Mutex // guards what is in force now
	gpus     []config.GPU
	schedule config.Schedule
}

// check finds everything that is wrong with the options before anything starts.
func (s *served) check() (err error) {
	if s.cardConfig, err = parts.Card(s.cfg); err != nil {
		return err
	}
	if s.by, s.options, s.lacks, err = parts.Server(s.cfg, s.alone, s.log); err != nil {
		return err
	}
	if s.limits, err = parts.Limits(s.cfg); err != nil {
		return err
	}
	for i := range s.cfg.GPUs {
		g, err := parts.GPU(&s.cfg.GPUs[i])
		if err != nil {
			return err
		}
		s.gpuConfigs = append(s.gpuConfigs, g)
	}
	return nil
}

// listen opens every socket.
func (s *served) listen(c *serveCmd) (err error) {
	if path := s.cfg.Control; path != "" {
		if path, err = socketPath(path, s.cfg.Where("control")); err != nil {
			return err
		}
		s.cfg.Control = path
		if s.control, err = api.Listen(path); err != nil {
			return err
		}
	}
	gpus := s.cfg.GPUs
	if s.alone {
		s.at, err = c.listen(s.cfg)
		return err
	}
	for i := range gpus {
		if gpus[i].Socket, err = socketPath(gpus[i].Socket, gpus[i].Where("socket")); err != nil {
			return err
		}
		l, err := vfiouser.Listen(gpus[i].Socket)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
		s.gpuConfigs[i].Socket = gpus[i].Socket
	}
	return nil
}

// start makes the card, its endpoint or its virtual GPUs, and serves the latter.
func (s *served) start() (err error) {
	if s.card, err = soft.New(s.cardConfig); err != nil {
		return err
	}
	if s.at != nil {
		if s.whole, err = serve.NewEndpoint(theCard, serve.NewPassThrough(s.card), s.card, s.by, s.options); err != nil {
			return err
		}
		s.events = serve.NewEventLogger(s.log, s.endpoints)
		return nil
	}
	s.schedule = s.cfg.Schedule()
	if s.shared, err = serve.NewShared(s.card, s.by, s.options, s.limits); err != nil {
		return err
	}
	for i, cfg := range s.gpuConfigs {
		l := s.listeners[0]
		s.listeners = s.listeners[1:]
		if _, err := s.shared.Add(cfg, l); err != nil {
			return err
		}
		s.gpus = append(s.gpus, s.cfg.GPUs[i])
	}
	return nil
}

// theCard is the name of the endpoint in pass-through.
const theCard = "card"

// run serves until ctx ends, or the client on an inherited connection disconnects.
func (s *served) run(ctx context.Context) error {
	serving, cancel := context.WithCancelCause(ctx)
	var controlled sync.WaitGroup
	if l := s.control; l != nil {
		s.control = nil
		controlled.Go(func() {
			if err := api.Serve(serving, l, s, s.log); err != nil {
				cancel(err)
			}
		})
	}
	var err error
	if s.at != nil {
		err = errors.Join(s.at.serve(serving, s.whole.Server), s.whole.Server.Close())
	} else {
		<-serving.Done()
	}
	if ctx.Err() == nil && serving.Err() != nil {
		err = context.Cause(serving) // the control socket failed
	}
	cancel(nil)
	controlled.Wait()
	return err
}

// close ends everything.
func (s *served) close() error {
	var errs []error
	if s.control != nil {
		s.control.Close()
	}
	if s.at != nil {
		s.at.close()
	}
	for _, l := range s.listeners {
		l.Close()
	}
	if s.events != nil {
		s.events.Close()
	}
	if s.shared != nil {
		errs = append(errs, s.shared.Close())
	}
	if s.card != nil {
		errs = append(errs, s.card.Close())
	}
	return errors.Join(errs...)
}

// endpoints lists what guests attach to.
func (s *served) endpoints() []*serve.Endpoint {
	if s.whole != nil {
		return []*serve.Endpoint{s.whole}
	}
	return s.shared.GPUs()
}
