package agent

import (
	"errors"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

func (s *Server) openDoorbell() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doorbell != nil {
		return errors.New("a doorbell is open: doorbell-close first")
	}
	s.doorbell, err = s.env.OpenDoorbell()
	return err
}

func (s *Server) ringDoorbell(a proto.DoorbellArgs) (proto.DoorbellResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doorbell == nil {
		return proto.DoorbellResult{}, errors.New("no doorbell is open: doorbell-open first")
	}
	return s.doorbell.Ring(a)
}

// closeDoorbell does nothing if none is open.
func (s *Server) closeDoorbell() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doorbell != nil {
		err = s.doorbell.Close()
		s.doorbell = nil
	}
	return err
}
