package agent

import (
	"errors"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

func (s *Server) openBells(a proto.NodeArgs) (_ none, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bells != nil {
		return none{}, errors.New("a doorbell is open: bells-close first")
	}
	s.bells, err = s.env.OpenBells(a)
	return none{}, err
}

func (s *Server) ringBells(a proto.BellsArgs) (proto.BellsResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bells == nil {
		return proto.BellsResult{}, errors.New("no doorbell is open: bells-open first")
	}
	return s.bells.Ring(a)
}

// closeBells does nothing if none is open.
func (s *Server) closeBells() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bells != nil {
		err = s.bells.Close()
		s.bells = nil
	}
	return err
}
