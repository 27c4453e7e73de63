package agent

import (
	"errors"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

var errNoThrottle = errors.New("no throttle is running")

func (s *Server) startThrottle(a proto.ThrottleArgs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.throttle != nil {
		return errors.New("a throttle is running: throttle-stop first")
	}
	t, err := s.env.StartThrottle(a)
	if err != nil {
		return err
	}
	s.throttle = t
	return nil
}

func (s *Server) throttleTotals() (proto.ThrottleTotals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.throttle == nil {
		return proto.ThrottleTotals{}, errNoThrottle
	}
	return s.throttle.Totals(), nil
}

func (s *Server) endThrottle() (proto.ThrottleTotals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.throttle == nil {
		return proto.ThrottleTotals{}, errNoThrottle
	}
	t := s.throttle.Stop()
	s.throttle = nil
	switch {
	case t.Error != "":
		return t, errors.New(t.Error)
	case t.Wrong:
		return t, errors.New("the launches did not copy what they are to copy")
	}
	return t, nil
}
