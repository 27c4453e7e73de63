package isolation

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

// victim is a well-behaved guest. It copies from RAM through VRAM and back, with
// every engine, and compares each byte.
type victim struct {
	g            *guest.Guest
	ch           *guest.Channel
	src          *guest.Buffer
	back         *guest.Buffer
	untouched    *guest.Buffer // VRAM that it never touches
	untouchedRAM *guest.Buffer // RAM that it never touches
	copies       atomic.Uint64

	stop chan struct{}
	done chan struct{}
	err  error
}

const (
	victimSize = 64 << 10
	srcVA      = 0x1000_0000
	viaVA      = 0x2000_0000
	backVA     = 0x3000_0000
)

func newVictim(socket string, cfg guest.Config) (*victim, error) {
	g, err := guest.Attach(context.Background(), socket, cfg)
	if err != nil {
		return nil, err
	}
	v := &victim{g: g, stop: make(chan struct{}), done: make(chan struct{})}
	if err := errors.Join(v.prepare(), v.settle()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	go v.run()
	return v, nil
}

func (v *victim) prepare() error {
	s, err := v.g.NewSpace()
	if err != nil {
		return err
	}
	if v.ch, err = v.g.NewChannel(1, s); err != nil {
		return err
	}
	if v.src, err = v.g.AllocRAM(victimSize); err != nil {
		return err
	}
	if v.back, err = v.g.AllocRAM(victimSize); err != nil {
		return err
	}
	via, err := v.g.AllocVRAM(2 * victimSize)
	if err != nil {
		return err
	}
	return errors.Join(s.Map(srcVA, v.src, guest.Small), s.Map(viaVA, via, guest.Big), s.Map(backVA, v.back, guest.Small))
}

// settle allocates memory that it never touches, and waits until the card has seen
// its tables.
func (v *victim) settle() (err error) {
	if v.untouched, err = v.g.AllocVRAM(4 << 20); err != nil {
		return err
	}
	if v.untouchedRAM, err = v.g.AllocRAM(512 << 10); err != nil {
		return err
	}
	copy(v.untouchedRAM.Data, secrets)
	return v.copy(rand.New(rand.NewPCG(3, 4)))
}

// pause is the victim's rest after a copy, so that the attacker has the processors.
const pause = 2 * time.Millisecond

func (v *victim) run() {
	defer close(v.done)
	rng := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-v.stop:
			return
		case <-time.After(pause):
		}
		if v.err = v.copy(rng); v.err != nil {
			return
		}
		v.copies.Add(1)
	}
}

func (v *victim) copy(rng *rand.Rand) error {
	for p := v.src.Data; len(p) > 0; p = p[8:] {
		binary.LittleEndian.PutUint64(p, rng.Uint64())
	}
	clear(v.back.Data)
	e := guest.CopyEngines[rng.IntN(len(guest.CopyEngines))]
	if err := v.ch.Copy(e, viaVA, srcVA, victimSize); err != nil {
		return err
	}
	if err := v.ch.Copy(e, backVA, viaVA, victimSize); err != nil {
		return err
	}
	f, err := v.ch.Fence()
	if err != nil {
		return err
	}
	if err := v.g.Wait(f); err != nil {
		return err
	}
	if !bytes.Equal(v.src.Data, v.back.Data) {
		return fmt.Errorf("a copy by %v came back changed", e)
	}
	if v.untouchedRAM != nil && !bytes.Equal(v.untouchedRAM.Data, secrets[:v.untouchedRAM.Size]) {
		return errors.New("its unused RAM changed")
	}
	for _, ev := range v.g.Events() {
		if ev.Fault != nil || ev.PBDMA != nil {
			return fmt.Errorf("got an error event that is not its own: %+v", ev)
		}
	}
	return nil
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
	return errors.Join(v.err, v.g.Close())
}
