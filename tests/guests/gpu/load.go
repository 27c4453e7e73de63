package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Load is clients that copy and verify until they are stopped. Each is a client of
// its own to the kernel, with its own address space and channel.
type Load struct {
	background
	clients int
	every   time.Duration
	copies  atomic.Uint64
	bytes   atomic.Uint64
	wrong   atomic.Uint64
	checks  atomic.Uint64
	lost    atomic.Uint64
}

// StartLoad starts the clients, and returns when each has done and verified a first round.
func (e *Env) StartLoad(a proto.LoadArgs) (*Load, error) {
	size := a.Bytes
	if size == 0 {
		size = 256 << 10
	}
	l := &Load{background: background{stop: make(chan struct{})}, clients: orInt(a.Clients, 1), every: time.Duration(a.EveryMS) * time.Millisecond}
	var err error
	ready := make(chan error, l.clients)
	for i := range l.clients {
		l.run(func() error { return l.client(e, uint64(size), uint64(a.KeepBytes), a.Seed+uint64(i)<<32, ready) })
	}
	for range l.clients {
		if rerr := <-ready; rerr != nil && err == nil {
			err = rerr
		}
	}
	if err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

// Totals is what has been done so far.
func (l *Load) Totals() proto.LoadTotals {
	return proto.LoadTotals{Copies: l.copies.Load(), Bytes: l.bytes.Load(), Wrong: l.wrong.Load(), Checks: l.checks.Load(), Lost: l.lost.Load(), Error: l.failure()}
}

// Stop ends the clients and returns the sums.
func (l *Load) Stop() proto.LoadTotals {
	l.end()
	return l.Totals()
}

// client copies GART to VRAM to VRAM to GART, new data each round, and checks data that it keeps
// in VRAM. It tells ready once: nil after its first round, or why it cannot work.
func (l *Load) client(e *Env, size, keep, seed uint64, ready chan<- error) (err error) {
	said := false
	say := func(err error) {
		if !said {
			ready <- err
			said = true
		}
	}
	defer func() { say(err) }()
	k, err := e.copier()
	if err != nil {
		return err
	}
	defer closeInto(k, &err)
	var vram [2]Buffer
	for i := range vram {
		if vram[i], err = k.s.dev.NewBuffer(size, drm.DomainVRAM); err != nil {
			return err
		}
		defer closeInto(vram[i], &err)
	}
	var stays Buffer
	kept := make([]byte, keep)
	if keep > 0 {
		if stays, err = k.s.dev.NewBuffer(keep, drm.DomainVRAM); err != nil {
			return err
		}
		defer closeInto(stays, &err)
		fill(kept, seed)
		if err := k.upload(push.M2MF, stays, drm.DomainVRAM, kept); err != nil {
			return err
		}
	}
	want := make([]byte, size)
	for !l.stopped() {
		next := time.Now().Add(l.every)
		seed++
		fill(want, seed)
		if err := l.round(k.copier, vram, want); err != nil {
			return err
		}
		if l.wrong.Load() > 0 {
			say(errWrong)
		}
		if keep > 0 {
			if err := l.check(k.copier, stays, kept); err != nil {
				return err
			}
		}
		say(nil)
		if l.every > 0 {
			select {
			case <-l.stop:
			case <-time.After(time.Until(next)):
			}
		}
	}
	return nil
}

// check counts the words of a buffer in VRAM that are not as they were filled.
func (l *Load) check(k *copier, b Buffer, want []byte) error {
	got, err := k.download(push.M2MF, b, drm.DomainVRAM, want)
	if err != nil {
		return err
	}
	l.checks.Add(1)
	if bytes.Equal(got, want) {
		return nil
	}
	for i := 0; i < len(want); i += 4 {
		if !bytes.Equal(got[i:i+4], want[i:i+4]) {
			l.lost.Add(1)
		}
	}
	return nil
}

var errWrong = errors.New("the first copies came out wrong")

func (l *Load) round(k *copier, vram [2]Buffer, want []byte) error {
	if err := k.upload(push.M2MF, vram[0], drm.DomainVRAM, want); err != nil {
		return err
	}
	if err := k.move(push.M2MF, vram[0], drm.DomainVRAM, vram[1], drm.DomainVRAM, uint64(len(want))); err != nil {
		return err
	}
	got, err := k.download(push.M2MF, vram[1], drm.DomainVRAM, want)
	if err != nil {
		return err
	}
	l.copies.Add(3)
	if !bytes.Equal(got, want) {
		l.wrong.Add(1)
		return nil
	}
	l.bytes.Add(3 * uint64(len(want)))
	return nil
}

// verified is a small round of copies on a new client: does the GPU still work?
func (e *Env) verified() (err error) {
	k, err := e.copier()
	if err != nil {
		return err
	}
	defer closeInto(k, &err)
	for i, r := range routes {
		j, err := plan(copyCase{Name: r[0] + " to " + r[1], Engine: "m2mf", From: r[0], To: r[1], LineBytes: 4096, Lines: 4}, uint64(i)+77)
		if err != nil {
			return err
		}
		if out := k.run(j); !out.OK {
			return fmt.Errorf("%s: %s", out.Name, out.Error)
		}
	}
	return nil
}

// alive runs one semaphore release on a stream: does its channel go on?
func alive(s *Stream, page Buffer, payload uint32) error {
	m, err := page.Bytes()
	if err != nil {
		return err
	}
	word(m, 0).Store(^payload)
	var b push.Buffer
	b.Semaphore(page.VA(), payload, push.SemRelease|push.SemOneWord)
	if err := s.Submit(&b, ref(page, drm.DomainGART, true)); err != nil {
		return err
	}
	if err := s.Flush(); err != nil {
		return err
	}
	if got := word(m, 0).Load(); got != payload {
		return fmt.Errorf("a semaphore release left %#x, want %#x", got, payload)
	}
	return nil
}

// background is work that goes on until it is stopped.
type background struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu  sync.Mutex // guards err
	err error      // the first
}

// run does f on a goroutine, and keeps its error.
func (b *background) run(f func() error) {
	b.wg.Go(func() {
		err := f()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.err == nil {
			b.err = err
		}
	})
}

// failure is the text of the first error.
func (b *background) failure() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		return ""
	}
	return b.err.Error()
}

func (b *background) stopped() bool {
	select {
	case <-b.stop:
		return true
	default:
		return false
	}
}

// end stops the work, and waits for its end.
func (b *background) end() {
	close(b.stop)
	b.wg.Wait()
}
