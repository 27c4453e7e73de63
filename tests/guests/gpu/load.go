package gpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Load is clients that copy and verify until they are stopped. Each is a client of
// its own to the kernel, with its own address space and channel.
type Load struct {
	clients int
	every   time.Duration
	stop    chan struct{}
	wg      sync.WaitGroup
	opened  sync.WaitGroup // clients that have a channel and its object, or failed

	mu  sync.Mutex // guards sum
	sum proto.LoadTotals
}

// StartLoad starts the clients, and returns when each has done and verified a first round.
func (e *Env) StartLoad(a proto.LoadArgs) (*Load, error) {
	l := &Load{clients: cmp.Or(a.Clients, 1), every: time.Duration(a.EveryMS) * time.Millisecond, stop: make(chan struct{})}
	ready := make(chan error, l.clients)
	l.opened.Add(l.clients)
	for i := range l.clients {
		l.wg.Go(func() {
			if err := l.client(e, uint64(cmp.Or(a.Bytes, 256<<10)), uint64(a.KeepBytes), a.Seed+uint64(i)<<32, ready); err != nil {
				l.add(proto.LoadTotals{Error: err.Error()})
			}
		})
	}
	var err error
	for range l.clients {
		err = errors.Join(err, <-ready)
	}
	if err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

// add sums the work of a client. The first error stays.
func (l *Load) add(t proto.LoadTotals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Copies += t.Copies
	l.sum.Bytes += t.Bytes
	l.sum.Wrong += t.Wrong
	l.sum.Checks += t.Checks
	l.sum.Lost += t.Lost
	l.sum.Error = cmp.Or(l.sum.Error, t.Error)
}

// Totals is what has been done so far.
func (l *Load) Totals() proto.LoadTotals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum
}

// Stop ends the clients, waits for their end, and returns the sums.
func (l *Load) Stop() proto.LoadTotals {
	close(l.stop)
	l.wg.Wait()
	return l.Totals()
}

// anotherRound waits for the clients to do another round each, or so, and stops them.
func (l *Load) anotherRound() (proto.LoadTotals, error) {
	before := l.Totals().Copies
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if t := l.Totals(); t.Copies >= before+3*uint64(l.clients) || t.Error != "" {
			break
		}
	}
	t := l.Stop()
	switch {
	case t.Error != "":
		return t, fmt.Errorf("background: %s", t.Error)
	case t.Wrong > 0:
		return t, fmt.Errorf("background: %d copies came out wrong", t.Wrong)
	case t.Copies == before:
		return t, fmt.Errorf("background: no copy was finished in %v after the offence", patience)
	}
	return t, nil
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
	if err == nil {
		defer closeInto(k, &err)
		err = k.s.use(k.s.chip.mover.Object())
	}
	l.opened.Done()
	if err != nil {
		return err
	}
	l.opened.Wait() // Linux 6.1 crashes if it finds no VRAM for an object
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
		if err := k.upload(k.s.chip.mover, stays, drm.DomainVRAM, kept); err != nil {
			return err
		}
	}
	want := make([]byte, size)
	for {
		next := time.After(l.every)
		seed++
		fill(want, seed)
		if err := l.round(k, vram, want); err != nil {
			return err
		}
		if l.Totals().Wrong > 0 {
			say(errWrong)
		}
		if keep > 0 {
			if err := l.check(k, stays, kept); err != nil {
				return err
			}
		}
		say(nil)
		select {
		case <-l.stop:
			return nil
		case <-next:
		}
	}
}

// check counts the words of a buffer in VRAM that are not as they were filled.
func (l *Load) check(k *copier, b Buffer, want []byte) error {
	got, err := k.download(k.s.chip.mover, b, drm.DomainVRAM, want)
	if err != nil {
		return err
	}
	t := proto.LoadTotals{Checks: 1}
	for i := 0; i < len(want); i += 4 {
		if end := min(i+4, len(want)); !bytes.Equal(got[i:end], want[i:end]) {
			t.Lost++
		}
	}
	l.add(t)
	return nil
}

var errWrong = errors.New("the first copies came out wrong")

func (l *Load) round(k *copier, vram [2]Buffer, want []byte) error {
	if err := k.upload(k.s.chip.mover, vram[0], drm.DomainVRAM, want); err != nil {
		return err
	}
	if err := k.move(k.s.chip.mover, vram[0], drm.DomainVRAM, vram[1], drm.DomainVRAM, uint64(len(want))); err != nil {
		return err
	}
	got, err := k.download(k.s.chip.mover, vram[1], drm.DomainVRAM, want)
	if err != nil {
		return err
	}
	t := proto.LoadTotals{Copies: 3, Bytes: 3 * uint64(len(want))}
	if !bytes.Equal(got, want) {
		t.Bytes, t.Wrong = 0, 1
	}
	l.add(t)
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
	s.chip.release(&b, page.VA(), payload)
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
