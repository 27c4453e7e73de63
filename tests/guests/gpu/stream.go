package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// slotBytes is the size of one push buffer, slots how many may be in flight.
const (
	slotBytes = 64 << 10
	slots     = 8
)

// Stream is a channel with push buffers of its own.
type Stream struct {
	dev   Device
	own   bool // the device ends with the stream
	ch    Channel
	chip  *chip
	slots []Buffer
	next  int
	bound map[uint32]bool // by class
}

// NewStream makes a channel and its push buffers.
func NewStream(dev Device) (*Stream, error) {
	chip, err := chipOf(dev)
	if err != nil {
		return nil, err
	}
	ch, err := dev.NewChannel()
	if err != nil {
		return nil, err
	}
	s := &Stream{dev: dev, ch: ch, chip: chip, bound: map[uint32]bool{}}
	for range slots {
		b, err := dev.NewBuffer(slotBytes, drm.DomainGART)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.slots = append(s.slots, b)
	}
	return s, nil
}

// stream opens the card for one stream.
func (e *Env) stream() (*Stream, error) {
	dev, err := e.Open()
	if err != nil {
		return nil, err
	}
	s, err := NewStream(dev)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	s.own = true
	return s, nil
}

// use makes the objects, once, and binds each to its subchannel.
func (s *Stream) use(objects ...push.Object) error {
	var b push.Buffer
	for _, o := range objects {
		if s.bound[o.Class] {
			continue
		}
		if err := s.ch.NewObject(o.Class); err != nil {
			return err
		}
		b.SetObject(o)
		s.bound[o.Class] = true
	}
	if len(b.Words) == 0 {
		return nil
	}
	return s.Submit(&b)
}

// Submit copies the words into a push buffer, waits only if all are in flight, and
// queues it.
func (s *Stream) Submit(b *push.Buffer, refs ...Ref) error {
	if len(b.Words)*4 > slotBytes {
		return fmt.Errorf("%d words in one submission: at most %d", len(b.Words), slotBytes/4)
	}
	slot := s.slots[s.next%slots]
	s.next++
	if err := wait(slot, true); err != nil {
		return err
	}
	m, err := slot.Bytes()
	if err != nil {
		return err
	}
	for i, w := range b.Words {
		binary.LittleEndian.PutUint32(m[4*i:], w)
	}
	list := append([]Ref{{Buffer: slot, Valid: drm.DomainGART}}, refs...)
	return s.ch.Submit(list, uint64(len(b.Words)*4))
}

// Flush waits until everything submitted is done.
func (s *Stream) Flush() error {
	if s.next == 0 {
		return nil
	}
	if err := wait(s.slots[(s.next-1)%slots], true); err != nil {
		return err
	}
	return s.ch.Alive()
}

// Close frees the channel first: the kernel then waits for its work.
func (s *Stream) Close() error {
	err := s.ch.Close()
	for _, b := range s.slots {
		err = errors.Join(err, b.Close())
	}
	if s.own {
		err = errors.Join(err, s.dev.Close())
	}
	return err
}

// wait is Buffer.Wait with words for the kernel's time-out.
func wait(b Buffer, write bool) error {
	err := b.Wait(write)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("the GPU did not finish in 30 s: %w", err)
	}
	return err
}
