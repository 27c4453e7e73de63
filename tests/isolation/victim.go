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

func newVictim(socket string, cfg guest.Config) (v *victim, err error) {
	v = &victim{stop: make(chan struct{}), done: make(chan struct{})}
	if v.Copier, err = rig.NewCopier(rig.Fermi, socket, cfg, 1); err != nil {
		return nil, err
	}
	if v.untouched, err = v.AllocVRAM(4 << 20); err != nil {
		return nil, err
	}
	if v.untouchedRAM, err = v.AllocRAM(512 << 10); err != nil {
		return nil, err
	}
	copy(v.untouchedRAM.Data, secrets)
	if err := v.Copy(); err != nil { // then the card has seen its tables
		return nil, err
	}
	go v.run()
	return v, nil
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
