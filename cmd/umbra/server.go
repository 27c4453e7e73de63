package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/parts"
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

	plan      *parts.Plan
	control   net.Listener        // nil if there is none
	at        *socket             // in pass-through
	listeners []*net.UnixListener // of virtual GPUs that are not yet served

	*parts.Running       // nil until it starts
	stuck          error // the client of Running.Whole does not end

	mu sync.Mutex // one Add, or change of the scheduler, at a time; never held while a client is waited for, until the end

	nowMu    sync.Mutex // guards what is in force now
	gpus     []config.GPU
	schedule config.Schedule
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
		s.plan.GPUs[i].Socket = gpus[i].Socket
	}
	return nil
}

// start makes the card with its endpoint or its virtual GPUs, and serves the latter.
func (s *served) start() (err error) {
	s.schedule, s.gpus = s.cfg.Schedule(), s.cfg.GPUs
	listeners := s.listeners
	s.listeners = nil
	s.Running, err = s.plan.Start(listeners)
	return err
}

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
		if err = s.at.serve(serving, s.Whole.Server); errors.Is(err, vfiouser.ErrStuck) {
			s.stuck = err
		} else {
			err = errors.Join(err, s.Whole.Server.Close())
		}
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
	if s.control != nil {
		s.control.Close()
	}
	if s.at != nil {
		s.at.close()
	}
	for _, l := range s.listeners {
		vfiouser.CloseListener(l)
	}
	if s.Running == nil {
		return nil
	}
	s.mu.Lock() // a late request that changes the card is finished
	defer s.mu.Unlock()
	err := s.stuck
	if err == nil {
		err = s.Running.Close()
	}
	if errors.Is(err, vfiouser.ErrStuck) {
		s.log.Warn("the server ends although a client's thread does not", "error", err)
		return nil
	}
	return err
}
