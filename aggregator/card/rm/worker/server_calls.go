package worker

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// Info describes the card.
func (s *Worker) Info() (i nvrm.Info, err error) {
	a, err := s.call(request{Call: callInfo}, nil, nil, s.timeout)
	if err == nil {
		err = json.Unmarshal(a.text, &i)
	}
	return i, err
}

// Doorbell returns the file of the card's doorbell (nvrm.DoorbellBytes). The driver keeps what the guest has on the card until
// the server, too, has unmapped and closed the files of Doorbell and NewVRAM.
func (s *Worker) Doorbell() (*os.File, error) { return s.file(request{Call: callDoorbell}) }

// NewVRAM makes an object of the card's memory, in whole pages of 2 MiB. The file maps it, from offset 0 and as a whole.
func (s *Worker) NewVRAM(object uint32, size uint64) (*os.File, error) {
	return s.file(request{Call: callNewVRAM, Number: object, A: size})
}

// Register makes n bytes of a file at off an object. Both are multiples of 4 KiB.
func (s *Worker) Register(object uint32, f *os.File, off, n uint64) error {
	_, err := s.call(request{Call: callRegister, Number: object, A: off, B: n}, nil, f, s.timeout)
	return err
}

// Free frees an object. No space may map it, and the server no longer maps its file: others get the memory.
func (s *Worker) Free(object uint32) error { return s.ask(callFree, object, 0) }

// NewSpace makes an address space.
func (s *Worker) NewSpace(space uint32) error { return s.ask(callNewSpace, space, 0) }

// FreeSpace frees a space. No channel may use it.
func (s *Worker) FreeSpace(space uint32) error { return s.ask(callFreeSpace, space, 0) }

// Invalidate makes the card drop its translations of a space.
func (s *Worker) Invalidate(space uint32) error { return s.ask(callInvalidate, space, 0) }

// FreeChannel ends a channel.
func (s *Worker) FreeChannel(channel uint32) error { return s.ask(callFreeChannel, channel, 0) }

// Reset ends a channel whose work does not end.
func (s *Worker) Reset(channel uint32) error { return s.ask(callReset, channel, 0) }

// Enable lets a channel run, or takes it off the card.
func (s *Worker) Enable(channel uint32, on bool) error {
	return s.ask(callEnable, channel, map[bool]uint64{true: 1}[on])
}

// SetSlice sets a channel's time slice.
func (s *Worker) SetSlice(channel uint32, us uint64) error { return s.ask(callSetSlice, channel, us) }

// Apply carries out steps, in their order, until one fails, and returns how many it did.
func (s *Worker) Apply(space uint32, steps []Step) (done int, err error) {
	for part := range slices.Chunk(steps, maxSteps) {
		a, err := s.call(request{Call: callApply, Number: space}, part, nil, s.timeout)
		done += min(int(a.Number), len(part))
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// NewChannel makes a channel that runs.
func (s *Worker) NewChannel(channel uint32, c Channel) (token uint32, err error) {
	a, err := s.call(request{Call: callNewChannel, Number: channel, Channel: c}, nil, nil, s.timeout)
	return a.Number, err
}
