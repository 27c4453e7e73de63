package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Doorbell is a channel for measuring what it costs to ring its doorbell.
type Doorbell struct {
	c    client
	page Buffer
	sem  []byte
	done uint32

	limit time.Duration // for one wait
}

// maxDoorbells bounds one request.
const maxDoorbells = 100_000

// OpenDoorbell makes the channel and runs one submission.
func (e *Env) OpenDoorbell() (_ *Doorbell, err error) {
	b := &Doorbell{limit: patience}
	if b.c, err = e.client(); err != nil {
		return nil, err
	}
	if b.page, err = b.c.dev.NewBuffer(4096, drm.DomainGART); err != nil {
		return nil, errors.Join(err, b.c.Close())
	}
	if b.sem, err = b.page.Bytes(); err == nil {
		word(b.sem, 0).Store(0)
		err = b.launch(new(push.Buffer), new(int64))
	}
	if err == nil {
		err = b.await()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close frees the channel.
func (b *Doorbell) Close() error { return errors.Join(b.c.Flush(), b.page.Close(), b.c.Close()) }

// Ring submits work through the driver, and awaits it in memory before the next.
func (b *Doorbell) Ring(a proto.DoorbellArgs) (res proto.DoorbellResult, err error) {
	if a.Count < 1 || a.Count > maxDoorbells {
		return res, fmt.Errorf("%d doorbells: want 1 to %d", a.Count, maxDoorbells)
	}
	n := a.Count
	launched, worked := make([]int64, n), make([]int64, n)
	var p push.Buffer
	for i := range n {
		start := time.Now()
		if err := b.launch(&p, &launched[i]); err != nil {
			return res, err
		}
		if err := b.await(); err != nil {
			return res, err
		}
		worked[i] = time.Since(start).Nanoseconds()
	}
	res.Count = n
	res.P50NS, res.P99NS = quantiles(launched)
	res.WorkP50NS, res.WorkP99NS = quantiles(worked)
	return res, b.c.ch.Alive()
}

// launch submits the release of a semaphore. It times the driver's part, which includes
// the doorbell.
func (b *Doorbell) launch(p *push.Buffer, took *int64) error {
	p.Reset()
	p.Semaphore(b.page.VA(), b.done+1, push.SemRelease|push.SemOneWord)
	list, segments, err := b.c.stage(p, ref(b.page, drm.DomainGART, true))
	if err != nil {
		return err
	}
	start := time.Now()
	err = b.c.ch.Submit(list, segments)
	*took = time.Since(start).Nanoseconds()
	b.done++
	return err
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
			end = time.Now().Add(b.limit)
		case time.Now().After(end):
			return fmt.Errorf("the semaphore stays at %d of %d", at.Load(), b.done)
		}
		pause := unix.NsecToTimespec(int64(20 * time.Microsecond))
		_ = unix.Nanosleep(&pause, nil)
	}
	return nil
}

func quantiles(each []int64) (p50, p99 int64) {
	slices.Sort(each)
	return each[len(each)/2], each[len(each)*99/100]
}
