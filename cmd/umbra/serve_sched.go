package main

import (
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// errNoScheduler says why nothing is shared, or changed about it.
func (s *served) errNoScheduler() error {
	if s.shared == nil {
		return s.errPassThrough()
	}
	return api.Conflict("there is no scheduler: work is given to the card as it comes; %s", config.WithScheduler)
}

// Schedule implements api.Backend.
func (s *served) Schedule() (api.Schedule, error) {
	if s.limits.Scheduler == nil || s.shared == nil {
		return api.Schedule{}, s.errNoScheduler()
	}
	c, n := s.shared.Schedule()
	options := config.ScheduleOf(c)
	out := api.Schedule{Options: options.Values(), Counts: n, Ledger: s.shared.Ledger(), Shares: []api.ShareOf{}}
	for _, v := range s.shared.GPUs() {
		t := timeOf(v)
		out.Shares = append(out.Shares, api.ShareOf{Name: v.Name, Weight: t.Weight, Cap: int(t.Cap), Priority: t.Priority})
	}
	return out, nil
}

// SetSchedule implements api.Backend.
func (s *served) SetSchedule(r api.SetRequest) (api.Schedule, error) {
	if s.limits.Scheduler == nil || s.shared == nil {
		return api.Schedule{}, s.errNoScheduler()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.schedule()
	changed, err := was.Change(r.Options)
	if err != nil {
		return api.Schedule{}, refused(err)
	}
	c, err := changed.Config()
	if err != nil {
		return api.Schedule{}, refused(err)
	}
	if err := s.shared.SetSchedule(*c); err != nil {
		return api.Schedule{}, refused(err)
	}
	out, err := s.Schedule()
	out.Was = differing(was.Values(), out.Options)
	s.logChange("scheduler", out.Options, out.Was, "options", r.Options)
	return out, err
}
