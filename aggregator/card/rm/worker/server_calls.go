package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// Info implements Worker, as the other methods do.
func (s *server) Info() (i nvrm.Info, err error) {
	a, err := s.call(request{Call: callInfo}, nil, nil, s.timeout)
	if err == nil {
		err = json.Unmarshal(a.text, &i)
	}
	return i, err
}

func (s *server) Doorbell() (*os.File, error) { return s.file(request{Call: callDoorbell}) }

func (s *server) NewVRAM(object uint32, size uint64) (*os.File, error) {
	return s.file(request{Call: callNewVRAM, Number: object, A: size})
}

func (s *server) Register(object uint32, f *os.File, off, n uint64) error {
	_, err := s.call(request{Call: callRegister, Number: object, A: off, B: n}, nil, f, s.timeout)
	return err
}

func (s *server) Free(object uint32) error         { return s.ask(callFree, object, 0) }
func (s *server) NewSpace(space uint32) error      { return s.ask(callNewSpace, space, 0) }
func (s *server) FreeSpace(space uint32) error     { return s.ask(callFreeSpace, space, 0) }
func (s *server) Invalidate(space uint32) error    { return s.ask(callInvalidate, space, 0) }
func (s *server) FreeChannel(channel uint32) error { return s.ask(callFreeChannel, channel, 0) }
func (s *server) Reset(channel uint32) error       { return s.ask(callReset, channel, 0) }

func (s *server) Enable(channel uint32, on bool) error {
	return s.ask(callEnable, channel, map[bool]uint64{true: 1}[on])
}

func (s *server) SetSlice(channel uint32, us uint64) error { return s.ask(callSetSlice, channel, us) }

func (s *server) Apply(space uint32, steps []Step) (done int, err error) {
	for part := range slices.Chunk(steps, maxSteps) {
		a, err := s.call(request{Call: callApply, Number: space}, part, nil, s.timeout)
		done += min(int(a.Number), len(part))
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *server) NewChannel(channel uint32, c Channel) (token uint32, err error) {
	if len(c.Classes) > maxClasses {
		return 0, fmt.Errorf("a channel of %d classes; at most %d are possible", len(c.Classes), maxClasses)
	}
	r := channelRequest{
		Space: c.Space, Entries: c.Entries, Own: c.Own, N: uint32(len(c.Classes)), Engine: c.Engine, Ring: c.Ring, USERD: c.USERD, Slice: c.Slice,
	}
	copy(r.Classes[:], c.Classes)
	a, err := s.call(request{Call: callNewChannel, Number: channel, Channel: r}, nil, nil, s.timeout)
	return a.Number, err
}
