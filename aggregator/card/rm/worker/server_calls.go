package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// Info implements Worker.
func (s *server) Info() (i nvrm.Info, err error) {
	a, err := s.call(request{Call: callInfo}, nil, nil, s.timeout)
	if err == nil {
		err = json.Unmarshal(a.text, &i)
	}
	return i, err
}

// Doorbell implements Worker.
func (s *server) Doorbell() (*os.File, error) { return s.file(request{Call: callDoorbell}) }

// NewVRAM implements Worker.
func (s *server) NewVRAM(object uint32, size uint64) (*os.File, error) {
	return s.file(request{Call: callNewVRAM, Number: object, A: size})
}

// Register implements Worker.
func (s *server) Register(object uint32, f *os.File, off, n uint64) error {
	_, err := s.call(request{Call: callRegister, Number: object, A: off, B: n}, nil, f, s.timeout)
	return err
}

// Free implements Worker.
func (s *server) Free(object uint32) error { return s.ask(request{Call: callFree, Number: object}) }

// NewSpace implements Worker.
func (s *server) NewSpace(space uint32) error {
	return s.ask(request{Call: callNewSpace, Number: space})
}

// FreeSpace implements Worker.
func (s *server) FreeSpace(space uint32) error {
	return s.ask(request{Call: callFreeSpace, Number: space})
}

// Apply implements Worker.
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

// Invalidate implements Worker.
func (s *server) Invalidate(space uint32) error {
	return s.ask(request{Call: callInvalidate, Number: space})
}

// NewChannel implements Worker.
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

// FreeChannel implements Worker.
func (s *server) FreeChannel(channel uint32) error {
	return s.ask(request{Call: callFreeChannel, Number: channel})
}

// Enable implements Worker.
func (s *server) Enable(channel uint32, on bool) error {
	return s.ask(request{Call: callEnable, Number: channel, A: uint64(bit(on))})
}

// SetSlice implements Worker.
func (s *server) SetSlice(channel uint32, us uint64) error {
	return s.ask(request{Call: callSetSlice, Number: channel, A: us})
}

// Reset implements Worker.
func (s *server) Reset(channel uint32) error {
	return s.ask(request{Call: callReset, Number: channel})
}
