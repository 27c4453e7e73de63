package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/metrics"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Server is a running card with what guests attach to. It answers the control API's requests.
type Server struct {
	Version string
	Config  *config.Config // at the start
	Card    *soft.Card
	Whole   *Endpoint // of a guest that has the whole card, else nil
	Shared  *Shared   // of virtual GPUs, else nil

	began   time.Time
	sharing config.Sharing
	log     *slog.Logger
	stopLog func() // of Whole

	inherited Sockets

	Confined []string // the folders of files that are named while it runs; nil without a sandbox. It is set before Run

	// Reread reads the configuration again for Reload; nil without a file. It is set before Run.
	Reread    func() (*config.Config, error)
	reloading sync.Mutex                    // one Reload at a time; taken before the other locks
	stated    stated                        // guarded by reloading
	defaults  atomic.Pointer[config.Config] // of GPUs that are added, and their profiles

	mu       sync.Mutex                      // one Add, or change of the scheduler, at a time; never held while a client is waited for, until the end
	schedule atomic.Pointer[config.Schedule] // in force, if it was changed
}

// wholeName is the name of the endpoint of a whole card.
const wholeName = "card"

// serveWhole serves the card to one guest.
func (s *Server) serveWhole(p *Plan, from *Inherited) (err error) {
	if s.Whole, err = NewEndpoint(wholeName, NewPassThrough(s.Card, p.windows), p.Make, p.options); err != nil {
		return err
	}
	s.Whole.Config.Socket, s.Whole.Config.Access = s.Config.Socket, p.access[s.Config.Socket]
	if from != nil {
		if s.Whole.Config.Socket, err = from.absolute(); err != nil {
			return err
		}
	}
	s.stopLog = logEvents(s.log, s.Endpoints)
	return s.Whole.serve(from)
}

// Endpoints lists what guests attach to.
func (s *Server) Endpoints() []*Endpoint {
	if s.Whole != nil {
		return []*Endpoint{s.Whole}
	}
	return s.Shared.GPUs()
}

// Run answers requests at the control socket, and those of Prometheus at an address, where these are not nil,
// until ctx ends, the client of an inherited connection disconnects, or one of them fails.
func (s *Server) Run(ctx context.Context, control, scraped net.Listener) (err error) {
	serving, cancel := context.WithCancelCause(ctx)
	var controlled sync.WaitGroup
	answer := func(l net.Listener, h http.Handler) {
		if l == nil {
			return
		}
		controlled.Go(func() {
			if err := api.Serve(serving, l, h, s.log); err != nil {
				cancel(err)
			}
		})
	}
	numbers := metrics.Handler(s.numbers, s.Version, s.log)
	answer(control, api.Handler(s, numbers))
	only := http.NewServeMux()
	only.Handle("GET /metrics", numbers)
	answer(scraped, only)
	var alone <-chan struct{} // closed when a whole card is no longer served
	if s.Whole != nil {
		alone = s.Whole.served
	}
	select {
	case <-serving.Done():
	case <-alone:
	}
	if ctx.Err() == nil {
		err = context.Cause(serving) // the control socket failed
	}
	cancel(nil)
	controlled.Wait()
	if s.Whole != nil {
		s.Whole.stop()
		err = errors.Join(err, s.Whole.err)
	}
	return err
}

// Close ends the virtual GPUs and the card, when no late request changes it any more. After
// vfiouser.ErrStuck a client's thread still uses the card: the process must end.
func (s *Server) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Shared != nil {
		err = s.Shared.Close()
	}
	if s.stopLog != nil {
		if err = vfiouser.ErrStuck; !s.Whole.stop() {
			err = s.Whole.Server.Close()
		}
		s.stopLog()
	}
	if s.Card == nil || errors.Is(err, vfiouser.ErrStuck) {
		return err
	}
	return errors.Join(err, s.Card.Close())
}
