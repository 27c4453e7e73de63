package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Doorbell is a channel to ring the doorbell of.
type Doorbell struct {
	s    *Stream
	page Buffer
	sem  []byte
	done uint32
}

// maxDoorbells bounds one request.
const maxDoorbells = 100_000

// OpenDoorbell makes the channel and runs one submission.
func (e *Env) OpenDoorbell() (_ *Doorbell, err error) {
	b := new(Doorbell)
	if b.s, err = e.stream(); err != nil {
		return nil, err
	}
	if b.page, err = b.s.dev.NewBuffer(4096, drm.DomainGART); err != nil {
		return nil, errors.Join(err, b.s.Close())
	}
	if b.sem, err = b.page.Bytes(); err == nil {
		word(b.sem, 0).Store(0)
		err = b.ring()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close frees the channel.
func (b *Doorbell) Close() error { return errors.Join(b.s.Flush(), b.page.Close(), b.s.Close()) }

// Ring submits work through the driver, and awaits it in memory before the next.
func (b *Doorbell) Ring(a proto.DoorbellArgs) error {
	if a.Count < 1 || a.Count > maxDoorbells {
		return fmt.Errorf("%d doorbells: want 1 to %d", a.Count, maxDoorbells)
	}
	for range a.Count {
		if err := b.ring(); err != nil {
			return err
		}
	}
	return b.s.ch.Alive()
}

func (b *Doorbell) ring() error {
	var p push.Buffer
	b.s.chip.release(&p, b.page.VA(), b.done+1)
	if err := b.s.Submit(&p, ref(b.page, drm.DomainGART, true)); err != nil {
		return err
	}
	b.done++
	return b.await()
}

// await waits until everything launched is done. It only reads memory.
func (b *Doorbell) await() error {
	at, end := word(b.sem, 0), time.Now().Add(patience)
	for reads := 1; at.Load() != b.done; reads++ {
		if reads < 1000 {
			runtime.Gosched()
			continue
		}
		if time.Now().After(end) {
			return fmt.Errorf("the semaphore stays at %d of %d", at.Load(), b.done)
		}
		time.Sleep(20 * time.Microsecond)
	}
	return nil
}
