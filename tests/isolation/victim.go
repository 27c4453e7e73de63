package isolation

import (
	"bytes"
	"errors"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
)

// victim copies until it is closed, and has memory that it never touches.
type victim struct {
	*rig.Copier
	untouched    *guest.Buffer // in VRAM
	untouchedRAM *guest.Buffer
	copies       atomic.Uint64

	stop, done chan struct{}
	err        error
}

func newVictim(socket string, cfg guest.Config) (*victim, error) {
	c, err := rig.NewCopier(socket, cfg, 1)
	if err != nil {
		return nil, err
	}
	v := &victim{Copier: c, stop: make(chan struct{}), done: make(chan struct{})}
	if err := v.settle(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go v.run()
	return v, nil
}

// settle allocates what it never touches, and waits until the card has seen its tables.
func (v *victim) settle() (err error) {
	if v.untouched, err = v.AllocVRAM(4 << 20); err != nil {
		return err
	}
	if v.untouchedRAM, err = v.AllocRAM(512 << 10); err != nil {
		return err
	}
	copy(v.untouchedRAM.Data, secrets)
	return v.Copy()
}

// pause is the victim's rest after a copy, so that the attacker has the processors.
const pause = 2 * time.Millisecond

func (v *victim) run() {
	defer close(v.done)
	for {
		select {
		case <-v.stop:
			return
		case <-time.After(pause):
		}
		if v.err = v.Copy(); v.err == nil && !bytes.Equal(v.untouchedRAM.Data, secrets[:v.untouchedRAM.Size]) {
			v.err = errors.New("its unused RAM changed")
		}
		if v.err != nil {
			return
		}
		v.copies.Add(1)
	}
}

// failed returns why the victim stopped, if it did.
func (v *victim) failed() error {
	select {
	case <-v.done:
		return v.err
	default:
		return nil
	}
}

func (v *victim) close() error {
	close(v.stop)
	<-v.done
	return errors.Join(v.err, v.Close())
}
