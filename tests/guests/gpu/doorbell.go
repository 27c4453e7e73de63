package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Doorbell is a channel to ring the doorbell of.
type Doorbell struct {
	c    client
	page Buffer
	sem  []byte
	done uint32
}

// maxDoorbells bounds one request.
const maxDoorbells = 100_000

// OpenDoorbell makes the channel and runs one submission.
func (e *Env) OpenDoorbell() (_ *Doorbell, err error) {
	b := new(Doorbell)
	if b.c, err = e.client(); err != nil {
		return nil, err
	}
	if b.page, err = b.c.dev.NewBuffer(4096, drm.DomainGART); err != nil {
		return nil, errors.Join(err, b.c.Close())
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
func (b *Doorbell) Close() error { return errors.Join(b.c.Flush(), b.page.Close(), b.c.Close()) }

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
	return b.c.ch.Alive()
}

func (b *Doorbell) ring() error {
	var p push.Buffer
	p.Semaphore(b.page.VA(), b.done+1, push.SemRelease|push.SemOneWord)
	if err := b.c.Submit(&p, ref(b.page, drm.DomainGART, true)); err != nil {
		return err
	}
	b.done++
	return b.await()
}

// eagerReads is how many reads of a semaphore follow each other without a pause.
const eagerReads = 1000

// await waits until everything launched is done. It only reads memory.
func (b *Doorbell) await() error {
	at := word(b.sem, 0)
	var end time.Time
	for reads := 1; at.Load() != b.done; reads++ {
		switch {
		case reads < eagerReads:
			runtime.Gosched()
			continue
		case reads == eagerReads:
			end = time.Now().Add(patience)
		case time.Now().After(end):
			return fmt.Errorf("the semaphore stays at %d of %d", at.Load(), b.done)
		}
		pause := unix.NsecToTimespec(int64(20 * time.Microsecond))
		_ = unix.Nanosleep(&pause, nil)
	}
	return nil
}
