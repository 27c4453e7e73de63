package agent

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

type none struct{}

// table is every command there is.
func (s *Server) table() map[string]command {
	sys, env := s.sys, s.env
	return map[string]command{
		proto.CmdPing:       act(func(none) error { return nil }),
		proto.CmdKmsg:       do(sys.Kmsg),
		proto.CmdMark:       do(sys.Mark),
		proto.CmdModprobe:   do(sys.Modprobe),
		proto.CmdRmmod:      act(sys.Rmmod),
		proto.CmdBind:       do(sys.Bind),
		proto.CmdDRI:        get(sys.DRI),
		proto.CmdPCI:        do(sys.PCI),
		proto.CmdInterrupts: do(sys.Interrupts),
		proto.CmdRegisters:  do(sys.Access),
		proto.CmdRun:        do(sys.Run),
		proto.CmdPoweroff:   last(sys.Poweroff),
		proto.CmdReboot:     last(sys.Reboot),
		proto.CmdSuspend:    act(func(none) error { return sys.Suspend() }),

		proto.CmdM2MF:          do(env.M2MF),
		proto.CmdCE:            do(env.CE),
		proto.CmdExec:          do(env.Exec),
		proto.CmdFences:        do(env.Fences),
		proto.CmdBOMoves:       do(env.BOMoves),
		proto.CmdFault:         do(env.Fault),
		proto.CmdLoad:          act(s.startLoad),
		proto.CmdLoadStop:      get(s.endLoad),
		proto.CmdDoorbellOpen:  act(func(none) error { return s.openDoorbell() }),
		proto.CmdDoorbell:      act(s.ringDoorbell),
		proto.CmdDoorbellClose: act(func(none) error { return s.closeDoorbell() }),
	}
}

// last makes a command whose work begins when its reply is out.
func last(f func() error) command {
	return func(json.RawMessage) (any, func() error, error) { return none{}, f, nil }
}

func (s *Server) startLoad(a proto.LoadArgs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.load != nil {
		return errors.New("a load is running: load-stop first")
	}
	l, err := s.env.StartLoad(a)
	if err != nil {
		return err
	}
	every := time.Second
	if a.ProgressMS > 0 {
		every = time.Duration(a.ProgressMS) * time.Millisecond
	}
	done := make(chan struct{})
	s.load, s.loadDone = l, done
	s.requests.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				s.Event(proto.EventLoad, l.Totals())
			}
		}
	})
	return nil
}

func (s *Server) endLoad() (proto.LoadTotals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.load == nil {
		return proto.LoadTotals{}, errors.New("no load is running")
	}
	t := s.stopLoad()
	switch {
	case t.Error != "":
		return t, errors.New(t.Error)
	case t.Wrong > 0:
		return t, errors.New("copies came out wrong")
	case t.Lost > 0:
		return t, errors.New("data in VRAM was lost")
	}
	return t, nil
}

// stopLoad needs mu.
func (s *Server) stopLoad() proto.LoadTotals {
	close(s.loadDone)
	t := s.load.Stop()
	s.load, s.loadDone = nil, nil
	return t
}

func (s *Server) openDoorbell() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doorbell != nil {
		return errors.New("a doorbell is open: doorbell-close first")
	}
	s.doorbell, err = s.env.OpenDoorbell()
	return err
}

func (s *Server) ringDoorbell(a proto.DoorbellArgs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doorbell == nil {
		return errors.New("no doorbell is open: doorbell-open first")
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
