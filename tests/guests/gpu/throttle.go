package gpu

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/push"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// A throttle keeps the card busy as a throttle.Load describes. Its work is launches of one
// copy inside VRAM, prepared in the guest's memory. A request is one entry of the
// channel's ring that covers several launches.

const (
	grain     = 256 << 10 // bytes that one launch copies
	maxGrains = 4096      // launches of one request
)

// Throttle runs processes that produce a load. Each is a separate client of the kernel.
type Throttle struct {
	load    throttle.Load
	args    proto.ThrottleArgs
	clients int
	began   time.Time

	stop chan struct{}
	wg   sync.WaitGroup

	submitted, done, launches, wrong, lives atomic.Uint64

	mu  sync.Mutex // guards err
	err error
}

// StartThrottle starts the processes, and returns when each has a channel.
func (e *Env) StartThrottle(a proto.ThrottleArgs) (*Throttle, error) {
	t := &Throttle{args: a, clients: orInt(a.Clients, 1), stop: make(chan struct{})}
	d := json.NewDecoder(bytes.NewReader(a.Load))
	d.DisallowUnknownFields()
	if err := d.Decode(&t.load); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	t.began = time.Now()
	ready := make(chan error, t.clients)
	for i := range t.clients {
		t.wg.Go(func() {
			if err := t.process(e, a.Seed+uint64(i)<<32, ready); err != nil {
				t.fail(err)
			}
		})
	}
	var err error
	for range t.clients {
		if rerr := <-ready; rerr != nil && err == nil {
			err = rerr
		}
	}
	if err != nil {
		t.Stop()
		return nil, err
	}
	return t, nil
}

func (t *Throttle) check() error {
	l := &t.load
	if err := l.Check("load."); err != nil {
		return err
	}
	longest := max(l.Busy, l.BusyMost)
	switch {
	case l.Alone > 0:
		return errors.New("load.alone: a guest does not know who uses the card")
	case l.Burst > drm.MaxPush:
		return fmt.Errorf("load.burst: %d: one submission has at most %d entries", l.Burst, drm.MaxPush)
	case t.args.GrainNS < 0 || t.args.GrainNS > 0 && max(t.grains(longest), t.grains(l.CopyBusy)) > maxGrains:
		return fmt.Errorf("load.busy: %v: takes %d launches of %d ns, at most %d fit into a request", longest, t.grains(longest), t.args.GrainNS, maxGrains)
	}
	return nil
}

// grains is how many launches keep an engine busy for d: one, if the duration of a launch
// is unknown.
func (t *Throttle) grains(d time.Duration) int {
	if t.args.GrainNS <= 0 {
		return 1
	}
	return max(1, int((int64(d)+t.args.GrainNS/2)/t.args.GrainNS))
}

// Totals is what has been done so far.
func (t *Throttle) Totals() proto.ThrottleTotals {
	r := proto.ThrottleTotals{
		Submitted: t.submitted.Load(), Done: t.done.Load(), Launches: t.launches.Load(), Wrong: t.wrong.Load(),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		r.Error = t.err.Error()
	}
	return r
}

// Stop waits until all submitted work is done, and returns the sums.
func (t *Throttle) Stop() proto.ThrottleTotals {
	close(t.stop)
	t.wg.Wait()
	return t.Totals()
}

func (t *Throttle) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
}

// pause sleeps; false if the throttle was stopped meanwhile.
func (t *Throttle) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.stop:
		return false
	case <-timer.C:
		return true
	}
}

func (t *Throttle) stopped() bool {
	select {
	case <-t.stop:
		return true
	default:
		return t.load.Stop > 0 && time.Since(t.began) >= t.load.Stop
	}
}

// process does the load, as one process after the other if they have a life.
func (t *Throttle) process(e *Env, seed uint64, ready chan<- error) error {
	source := throttle.NewSource(t.load, seed)
	for first := true; ; first = false {
		again, err := t.live(e, source, seed, func(err error) {
			if first {
				ready <- err
			}
		})
		if err != nil || !again {
			return err
		}
	}
}

// live is one process. It tells ready once, when it has its channels or why not.
func (t *Throttle) live(e *Env, source *throttle.Source, seed uint64, ready func(error)) (again bool, err error) {
	r, err := t.newRun(e, seed)
	ready(err)
	if err != nil {
		return false, err
	}
	defer closeInto(r, &err)
	if t.lives.Add(1) <= uint64(t.clients) && t.load.Start > 0 && !t.pause(t.load.Start) {
		return false, nil
	}
	dies := time.Now().Add(t.load.Life)
	left := true // of the source
	for left && !t.stopped() {
		if t.load.Life > 0 && time.Now().After(dies) {
			again = true
			break
		}
		if len(r.flying) == t.load.Ahead {
			if err := r.reap(); err != nil {
				return false, err
			}
			if t.load.Think > 0 && !t.pause(t.load.Think) {
				break
			}
			continue
		}
		if left, err = r.ring(source); err != nil {
			return false, err
		}
	}
	for len(r.flying) > 0 {
		if err := r.reap(); err != nil {
			return false, err
		}
	}
	return again, r.verify()
}

// run is what a process has: an address space with memory, and a channel for each kind
// of request.
type run struct {
	t        *Throttle
	dev      Device
	src, dst Buffer
	want     []byte
	lanes    [2]*lane // requests, copies
	marks    []Buffer // one for each burst that may be unfinished
	next     int      // of marks
	launched bool     // something, so that dst is as src
	flying   []flight // oldest first
}

// lane is a channel with its list of launches.
type lane struct {
	s     *Stream
	list  Buffer
	words int // of a launch
}

// flight is a burst that is unfinished: the buffers by which its end is seen.
type flight struct {
	marks    []Buffer
	requests int
}

func (t *Throttle) newRun(e *Env, seed uint64) (_ *run, err error) {
	r := &run{t: t, want: make([]byte, grain)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.dev, err = e.Open(); err != nil {
		return nil, err
	}
	for _, b := range []*Buffer{&r.src, &r.dst} {
		if *b, err = r.dev.NewBuffer(grain, drm.DomainVRAM); err != nil {
			return nil, err
		}
	}
	fill(r.want, seed+1)
	for i, used := range []bool{t.load.Copies < 1000, t.load.Copies > 0} {
		if used {
			if r.lanes[i], err = r.newLane([]push.Engine{push.M2MF, push.CE0}[i]); err != nil {
				return nil, err
			}
		}
	}
	for range t.load.Ahead * len(r.lanes) {
		b, err := r.dev.NewBuffer(4096, drm.DomainGART)
		if err != nil {
			return nil, err
		}
		r.marks = append(r.marks, b)
	}
	return r, r.upload()
}

func (r *run) newLane(eng push.Engine) (l *lane, err error) {
	var b push.Buffer
	b.Copy(eng, r.dst.VA(), r.src.VA(), grain)
	l = &lane{words: len(b.Words)}
	if l.s, err = NewStream(r.dev); err != nil {
		return nil, err
	}
	if err := l.s.use(eng.Object()); err != nil {
		return nil, errors.Join(err, l.s.Close())
	}
	if l.list, err = r.dev.NewBuffer(uint64(maxGrains*l.words*4), drm.DomainGART); err != nil {
		return nil, errors.Join(err, l.s.Close())
	}
	m, err := l.list.Bytes()
	if err != nil {
		return nil, errors.Join(err, l.s.Close(), l.list.Close())
	}
	for at := range maxGrains * l.words {
		binary.LittleEndian.PutUint32(m[4*at:], b.Words[at%l.words])
	}
	return l, nil
}

// copier moves the process's data between its memory and the processor's.
func (r *run) copier(f func(k *copier) error) (err error) {
	k, err := newCopier(r.dev)
	if err != nil {
		return err
	}
	defer closeInto(k, &err)
	return f(k)
}

func (r *run) upload() error {
	return r.copier(func(k *copier) error {
		return errors.Join(
			k.upload(push.M2MF, r.src, drm.DomainVRAM, r.want),
			k.upload(push.M2MF, r.dst, drm.DomainVRAM, make([]byte, len(r.want))),
		)
	})
}

// verify looks whether the launches did anything. A process whose life is over before it
// had a processor has made none.
func (r *run) verify() error {
	if !r.launched {
		return nil
	}
	return r.copier(func(k *copier) error {
		got, err := k.download(push.M2MF, r.dst, drm.DomainVRAM, r.want)
		if err == nil && !bytes.Equal(got, r.want) {
			r.t.wrong.Add(1)
		}
		return err
	})
}

// ring submits a burst: its requests in one submission, its copies in another. It
// returns false when there are no more.
func (r *run) ring(source *throttle.Source) (more bool, err error) {
	var segments [2][]drm.Segment
	more = true
	for range r.t.load.Burst {
		q, ok := source.Next()
		if !ok {
			more = false
			break
		}
		i := 0
		if q.Copy {
			i = 1
		}
		n := r.t.grains(q.Busy)
		r.t.launches.Add(uint64(n))
		segments[i] = append(segments[i], drm.Segment{Ref: 1, Bytes: uint64(n * r.lanes[i].words * 4)})
	}
	var f flight
	for i, l := range r.lanes {
		if len(segments[i]) == 0 {
			continue
		}
		mark := r.marks[r.next%len(r.marks)]
		r.next++
		refs := []Ref{ref(mark, drm.DomainGART, true), ref(l.list, drm.DomainGART, false), ref(r.src, drm.DomainVRAM, false), ref(r.dst, drm.DomainVRAM, false)}
		if err := l.s.ch.Submit(refs, segments[i]); err != nil {
			return false, err
		}
		r.launched = true
		f.marks, f.requests = append(f.marks, mark), f.requests+len(segments[i])
	}
	if f.requests > 0 {
		r.t.submitted.Add(uint64(f.requests))
		r.flying = append(r.flying, f)
	}
	return more, nil
}

// reap waits for the oldest burst.
func (r *run) reap() error {
	f := r.flying[0]
	r.flying = r.flying[1:]
	for _, m := range f.marks {
		if err := wait(m, false); err != nil {
			return err
		}
	}
	r.t.done.Add(uint64(f.requests))
	for _, l := range r.lanes {
		if l != nil {
			if err := l.s.ch.Alive(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) Close() error {
	var errs []error
	for _, l := range r.lanes {
		if l != nil {
			errs = append(errs, l.s.Close(), l.list.Close())
		}
	}
	for _, b := range append(r.marks, r.src, r.dst) {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	if r.dev != nil {
		errs = append(errs, r.dev.Close())
	}
	return errors.Join(errs...)
}
