package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

const (
	grain     = 256 << 10 // bytes that one launch copies
	maxGrains = 4096      // launches of one request
)

// Throttle is a process that keeps the card busy. Its work is launches of one copy inside
// VRAM, prepared in the guest's memory. A request is one entry of the channel's ring that
// covers several launches.
type Throttle struct {
	background
	args   proto.ThrottleArgs
	grains int // launches of a request

	dev      Device
	src, dst Buffer
	want     []byte
	s        *Stream
	list     Buffer   // of launches
	words    int      // of a launch
	marks    []Buffer // one for each burst that may be unfinished
	flying   []int    // requests of bursts that are unfinished, oldest first
	bursts   int      // submitted

	submitted, done, launches atomic.Uint64
	wrong                     atomic.Bool
}

// StartThrottle starts the process, and returns when it has a channel.
func (e *Env) StartThrottle(a proto.ThrottleArgs) (*Throttle, error) {
	t := &Throttle{background: background{stop: make(chan struct{})}, args: a, grains: 1, want: make([]byte, grain)}
	if a.GrainNS > 0 {
		t.grains = max(1, int((a.BusyNS+a.GrainNS/2)/a.GrainNS))
	}
	if a.Burst < 1 || a.Burst > drm.MaxPush || a.Ahead < 1 || t.grains > maxGrains {
		return nil, fmt.Errorf("bursts of %d requests of %d launches, %d ahead: want 1 to %d, 1 to %d, and 1 or more", a.Burst, t.grains, a.Ahead, drm.MaxPush, maxGrains)
	}
	if err := t.prepare(e); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.run(func() error { return errors.Join(t.live(), t.close()) })
	return t, nil
}

// Totals is what has been done so far.
func (t *Throttle) Totals() proto.ThrottleTotals {
	return proto.ThrottleTotals{
		Submitted: t.submitted.Load(), Done: t.done.Load(), Launches: t.launches.Load(), Wrong: t.wrong.Load(), Error: t.failure(),
	}
}

// Stop waits until all submitted work is done, and returns the sums.
func (t *Throttle) Stop() proto.ThrottleTotals {
	t.end()
	return t.Totals()
}

func (t *Throttle) live() error {
	for left := t.args.Requests; !t.stopped() && (t.args.Requests == 0 || left > 0); {
		if len(t.flying) == t.args.Ahead {
			if err := t.reap(); err != nil {
				return err
			}
			continue
		}
		n := t.args.Burst
		if t.args.Requests > 0 {
			n = min(n, left)
			left -= n
		}
		if err := t.ring(n); err != nil {
			return err
		}
	}
	for len(t.flying) > 0 {
		if err := t.reap(); err != nil {
			return err
		}
	}
	return t.verify()
}

// prepare makes an address space with memory, a channel, and the list of launches.
func (t *Throttle) prepare(e *Env) (err error) {
	if t.dev, err = e.Open(); err != nil {
		return err
	}
	for _, b := range []*Buffer{&t.src, &t.dst} {
		if *b, err = t.dev.NewBuffer(grain, drm.DomainVRAM); err != nil {
			return err
		}
	}
	for range t.args.Ahead {
		b, err := t.dev.NewBuffer(4096, drm.DomainGART)
		if err != nil {
			return err
		}
		t.marks = append(t.marks, b)
	}
	if t.s, err = NewStream(t.dev); err != nil {
		return err
	}
	if err := t.s.use(push.M2MF.Object()); err != nil {
		return err
	}
	launch := new(push.Buffer).Copy(push.M2MF, t.dst.VA(), t.src.VA(), grain).Words
	t.words = len(launch)
	if t.list, err = t.dev.NewBuffer(uint64(maxGrains*t.words*4), drm.DomainGART); err != nil {
		return err
	}
	m, err := t.list.Bytes()
	if err != nil {
		return err
	}
	for at := range maxGrains * t.words {
		binary.LittleEndian.PutUint32(m[4*at:], launch[at%t.words])
	}
	fill(t.want, t.args.Seed+1)
	return t.copier(func(k *copier) error {
		return errors.Join(
			k.upload(push.M2MF, t.src, drm.DomainVRAM, t.want),
			k.upload(push.M2MF, t.dst, drm.DomainVRAM, make([]byte, grain)),
		)
	})
}

// copier moves data between the process's memory and the processor's.
func (t *Throttle) copier(f func(k *copier) error) (err error) {
	k, err := newCopier(t.dev)
	if err != nil {
		return err
	}
	defer closeInto(k, &err)
	return f(k)
}

// verify looks whether the launches did anything, if there were any.
func (t *Throttle) verify() error {
	if t.bursts == 0 {
		return nil
	}
	return t.copier(func(k *copier) error {
		got, err := k.download(push.M2MF, t.dst, drm.DomainVRAM, t.want)
		t.wrong.Store(err == nil && !bytes.Equal(got, t.want))
		return err
	})
}

// ring submits a burst.
func (t *Throttle) ring(requests int) error {
	segments := make([]drm.Segment, requests)
	for i := range segments {
		segments[i] = drm.Segment{Ref: 1, Bytes: uint64(t.grains * t.words * 4)}
	}
	mark := t.marks[t.bursts%len(t.marks)]
	refs := []Ref{ref(mark, drm.DomainGART, true), ref(t.list, drm.DomainGART, false), ref(t.src, drm.DomainVRAM, false), ref(t.dst, drm.DomainVRAM, false)}
	if err := t.s.ch.Submit(refs, segments); err != nil {
		return err
	}
	t.bursts++
	t.submitted.Add(uint64(requests))
	t.launches.Add(uint64(requests * t.grains))
	t.flying = append(t.flying, requests)
	return nil
}

// reap waits for the oldest burst.
func (t *Throttle) reap() error {
	if err := wait(t.marks[(t.bursts-len(t.flying))%len(t.marks)], false); err != nil {
		return err
	}
	t.done.Add(uint64(t.flying[0]))
	t.flying = t.flying[1:]
	return t.s.ch.Alive()
}

func (t *Throttle) close() error {
	var errs []error
	if t.s != nil {
		errs = append(errs, t.s.Close())
	}
	for _, b := range append(t.marks, t.src, t.dst, t.list) {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	if t.dev != nil {
		errs = append(errs, t.dev.Close())
	}
	return errors.Join(errs...)
}
