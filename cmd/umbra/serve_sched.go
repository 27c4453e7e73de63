package main

import (
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/control"
)

// errNoScheduler says why nothing is shared, or changed about it.
func (s *served) errNoScheduler() error {
	if s.shared == nil {
		return s.errPassThrough()
	}
	return control.Conflict("there is no scheduler: work is given to the card as it comes; %s", config.WithScheduler)
}

// Schedule implements control.Backend.
func (s *served) Schedule() (control.Schedule, error) {
	if s.limits.Scheduler == nil || s.shared == nil {
		return control.Schedule{}, s.errNoScheduler()
	}
	c, n := s.shared.Schedule()
	options := config.ScheduleOf(c)
	return control.Schedule{Options: options.Values(), Counts: n, Ledger: s.shared.Ledger()}, nil
}

// SetSchedule implements control.Backend.
func (s *served) SetSchedule(r control.SetRequest) (control.Schedule, error) {
	if s.limits.Scheduler == nil || s.shared == nil {
		return control.Schedule{}, s.errNoScheduler()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, _ := s.shared.Schedule()
	changed, err := config.ScheduleOf(c).Change(r.Options)
	if err != nil {
		return control.Schedule{}, refused(err)
	}
	if c, err = changed.Config(); err != nil {
		return control.Schedule{}, refused(err)
	}
	if err := s.shared.SetSchedule(*c); err != nil {
		return control.Schedule{}, refused(err)
	}
	s.log.Info("scheduler changed", "options", r.Options)
	out, err := s.Schedule()
	out.Warnings = texts(changed.Idle(r.Options, config.BesideOf(s.gpus)))
	return out, err
}
