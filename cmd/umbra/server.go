package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

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
	out   stdout
	log   *slog.Logger

	plan      *parts.Plan
	control   net.Listener        // nil if there is none
	at        *socket             // in pass-through
	listeners []*net.UnixListener // of virtual GPUs that are not yet served

	*parts.Running // nil until it starts
	api            *serve.Control
	stuck          error // the client of Running.Whole does not end
}

// resolve makes the paths of all sockets absolute.
func (s *served) resolve() (err error) {
	if c := s.cfg; c.Control != "" {
		if c.Control, err = serve.SocketPath(c.Control, c.Where("control")); err != nil {
			return err
		}
	}
	if c := s.cfg; c.Socket != "" {
		if c.Socket, err = serve.SocketPath(c.Socket, c.Where("socket")); err != nil {
			return err
		}
	}
	for i := range s.cfg.GPUs {
		g := &s.cfg.GPUs[i]
		if g.Socket, err = serve.SocketPath(g.Socket, g.Where("socket")); err != nil {
			return err
		}
	}
	return nil
}

// listen opens every socket.
func (s *served) listen(c *serveCmd) (err error) {
	if path := s.cfg.Control; path != "" {
		if s.control, err = api.Listen(path); err != nil {
			return err
		}
	}
	if s.alone {
		s.at, err = c.listen(s.cfg.Socket)
		return err
	}
	for i := range s.cfg.GPUs {
		l, err := vfiouser.Listen(s.cfg.GPUs[i].Socket)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

// start makes the card with its endpoint or its virtual GPUs, and serves the latter.
func (s *served) start() (err error) {
	listeners := s.listeners
	s.listeners = nil
	if s.Running, err = s.plan.Start(listeners); err != nil {
		return err
	}
	s.api.Card, s.api.Whole, s.api.Shared, s.api.Scheduled = s.Card, s.Whole, s.Shared, s.plan.Scheduled()
	if s.at != nil {
		s.api.Socket = s.at.path
	}
	return nil
}

// run serves until ctx ends, or the client on an inherited connection disconnects.
func (s *served) run(ctx context.Context) error {
	serving, cancel := context.WithCancelCause(ctx)
	var controlled sync.WaitGroup
	if l := s.control; l != nil {
		s.control = nil
		controlled.Go(func() {
			if err := api.Serve(serving, l, s.api, s.log); err != nil {
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

// report writes the report to the standard output.
func (s *served) report() error {
	r, err := s.api.Report()
	if err != nil {
		return err
	}
	return s.out.write(r, reportText(&r))
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
	err := s.stuck
	if err == nil {
		err = s.api.Finish(s.Running.Close)
	}
	if errors.Is(err, vfiouser.ErrStuck) {
		s.log.Warn("the server ends although a client's thread does not", "error", err)
		return nil
	}
	return err
}
