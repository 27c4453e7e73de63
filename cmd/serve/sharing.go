package serve

import (
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// ledger is the account of the card's time; empty where nobody shares it.
func (s *Server) ledger() []sched.Entry {
	if s.Shared == nil {
		return nil
	}
	return s.Shared.agg.Ledger()
}

// Schedule returns how the card's time is shared now.
func (s *Server) Schedule() config.Schedule {
	if changed := s.schedule.Load(); changed != nil {
		return *changed
	}
	return s.Config.Schedule()
}

// policy names how guests share the card.
func (s *Server) policy() string {
	if s.sharing == config.BySlices {
		return api.PolicySlices
	}
	return s.Schedule().Policy
}

// needSharing refuses requests about shares of the card's time where there are none.
func (s *Server) needSharing() error {
	if err := s.needShared(); err != nil || s.sharing != config.Unshared {
		return err
	}
	return api.Conflict("scheduler.policy", config.SchedulerOff, "there is no scheduler: work is given to the card as it comes; %s", config.WithScheduler)
}

func (e *Endpoint) share() *api.Share {
	g := e.options.Load()
	return &api.Share{Name: g.Name, Weight: g.Weight, Cap: int(g.Cap), Priority: g.Priority}
}

// Scheduler implements api.Backend.
func (s *Server) Scheduler() (out api.Scheduler, err error) {
	if err := s.needSharing(); err != nil {
		return out, err
	}
	out = api.Scheduler{Policy: s.policy(), Settings: []api.Setting{}, Counts: s.Shared.agg.ScheduleCounts(), Ledger: treeOf(s.ledger()), Shares: []api.Share{}}
	if s.sharing == config.ByScheduler {
		now := s.Schedule()
		out.Settings = now.Settings()
	}
	for _, e := range s.Endpoints() {
		out.Shares = append(out.Shares, *e.share())
	}
	return out, nil
}

// SetScheduler implements api.Backend.
func (s *Server) SetScheduler(r api.SetRequest) (out api.Scheduler, err error) {
	if err := s.needSharing(); err != nil {
		return out, err
	}
	if s.sharing == config.BySlices {
		return out, api.Conflict("card.kind", s.Config.Card.Kind, "this card shares its engines itself, by the weights of its GPUs alone; umbra gpu set NAME weight=200 changes one")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.Schedule()
	changed, err := was.Change(r.Options)
	if err != nil {
		return out, refused(err)
	}
	to, err := changed.Config()
	if err == nil {
		err = s.Shared.agg.SetSchedule(*to)
	}
	if err != nil {
		return out, refused(err)
	}
	s.schedule.Store(&changed)
	out, err = s.Scheduler()
	out.Changes = s.changes("scheduler", was.Settings(), out.Settings, "options", r.Options)
	return out, err
}
