package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// semTest is two channels of one client with two pages: one for the semaphore under
// test, one for the mark that a channel sets once it has passed. Both pages are on the
// validation lists for reading only, or the kernel would order the channels itself.
type semTest struct {
	env    *Env
	dev    Device
	a, b   *Stream
	page   Buffer
	mark   Buffer
	pageM  []byte
	markM  []byte
	hold   time.Duration
	seed   random
	checks []proto.Check
	failed int
}

const (
	markClear = 0x0badf00d
	patience  = time.Minute // for what is waited for at all; only a failure uses it up
)

// Semaphores checks the host's and the engines' semaphores in all modes.
func (e *Env) Semaphores(a proto.SemaphoresArgs) (res proto.SemaphoresResult, err error) {
	t := &semTest{env: e, seed: random(a.Seed), hold: 20 * time.Millisecond}
	if t.dev, err = e.Open(); err != nil {
		return res, err
	}
	defer closeInto(t.dev, &err)
	for _, b := range []struct {
		b *Buffer
		m *[]byte
	}{{&t.page, &t.pageM}, {&t.mark, &t.markM}} {
		if *b.b, err = t.dev.NewBuffer(4096, drm.DomainGART); err != nil {
			return res, err
		}
		defer closeInto(*b.b, &err)
		if *b.m, err = (*b.b).Bytes(); err != nil {
			return res, err
		}
	}
	for _, s := range []**Stream{&t.a, &t.b} {
		if *s, err = NewStream(t.dev); err != nil {
			return res, err
		}
		defer closeInto(*s, &err)
	}
	t.releases()
	t.acquires()
	t.reports()
	t.rest()
	res.Checks, res.Failed = t.checks, t.failed
	if t.failed > 0 {
		err = fmt.Errorf("%d of %d semaphore checks failed", t.failed, len(t.checks))
		for _, c := range t.checks {
			if !c.OK && c.Skipped == "" {
				return res, fmt.Errorf("%w; the first: %s: %s", err, c.Name, c.Error)
			}
		}
	}
	return res, err
}

// errSkip is a check that this machine cannot make.
type errSkip struct{ why string }

func (e errSkip) Error() string { return e.why }

func (t *semTest) check(name string, f func() error) {
	err := f()
	c := proto.Check{Name: name, OK: err == nil}
	var skip errSkip
	switch {
	case errors.As(err, &skip):
		c.Skipped = skip.why
	case err != nil:
		c.Error = err.Error()
		t.failed++
	}
	t.checks = append(t.checks, c)
}

// word is a 32-bit word that the GPU writes while the CPU looks.
func word(m []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&m[off]))
}

func (t *semTest) refs() []Ref {
	return []Ref{ref(t.page, drm.DomainGART, false), ref(t.mark, drm.DomainGART, false)}
}

func (t *semTest) arm() {
	for i := range semWords {
		word(t.pageM, 4*i).Store(semFill(i))
	}
	word(t.markM, 0).Store(markClear)
}

func (t *semTest) va() uint64 { return t.page.VA() + semOffset }

// released runs commands that release the semaphore and compares the page.
func (t *semTest) released(kind string, payload uint32, emit func(b *push.Buffer)) error {
	t.arm()
	var b push.Buffer
	emit(&b)
	if err := t.a.Submit(&b, t.refs()...); err != nil {
		return err
	}
	if err := t.a.Flush(); err != nil {
		return err
	}
	return checkSemaphoreWords(t.pageM, kind, payload)
}

func (t *semTest) stamp() uint64 { return binary.LittleEndian.Uint64(t.pageM[semOffset+8:]) }

func (t *semTest) releases() {
	for _, c := range []struct {
		name, kind string
		op         uint32
	}{
		{"release, four words", "four", push.SemRelease},
		{"release, one word", "one", push.SemRelease | push.SemOneWord},
		{"release, four words, no wait for idle", "four", push.SemRelease | push.SemNoWFI},
		{"release, one word, no wait for idle", "one", push.SemRelease | push.SemOneWord | push.SemNoWFI},
	} {
		payload := uint32(t.seed.next())
		t.check(c.name, func() error {
			return t.released(c.kind, payload, func(b *push.Buffer) { b.Semaphore(t.va(), payload, c.op) })
		})
	}
	t.check("release times are PTIMER's and rise", t.times)
}

func (t *semTest) times() error {
	var last uint64
	for i := range 3 {
		before, err := t.dev.Param(drm.ParamPTimer)
		if err != nil {
			return err
		}
		err = t.released("four", uint32(i), func(b *push.Buffer) { b.Semaphore(t.va(), uint32(i), push.SemRelease) })
		if err != nil {
			return err
		}
		after, err := t.dev.Param(drm.ParamPTimer)
		if err != nil {
			return err
		}
		now := t.stamp()
		if now < before || now > after || now <= last {
			return fmt.Errorf("release %d at %d ns, PTIMER %d before and %d after, the last release at %d", i, now, before, after, last)
		}
		last = now
	}
	return nil
}

// acquireCase waits on a semaphore that holds held; passes lets it go. near is a value that
// must not.
type acquireCase struct {
	name    string
	op      uint32
	payload uint32
	held    uint32
	near    uint32
	passes  uint32
}

var acquireCases = []acquireCase{
	{"equal", push.SemAcquireEqual, 7, 3, 8, 7},
	{"greater or equal", push.SemAcquireGE, 100, 99, 98, 100},
	{"greater or equal, past it", push.SemAcquireGE, 100, 50, 99, 5000},
	{"greater or equal, signed difference", push.SemAcquireGE, 5, 0xfffffff0, 0xffffffff, 6},
	{"and", push.SemAcquireAnd, 0x30, 0x0f, 0x40, 0x20},
}

func (t *semTest) acquires() {
	for _, c := range acquireCases {
		t.check("acquire "+c.name+", already there", func() error { return t.passesAtOnce(c) })
		t.check("acquire "+c.name+", the CPU releases", func() error {
			return t.waits(c, push.SemSwitch, func(v uint32) error { word(t.pageM, semOffset).Store(v); return nil })
		})
		t.check("acquire "+c.name+", another channel releases", func() error {
			return t.waits(c, push.SemSwitch, t.releaseByB)
		})
	}
	t.check("acquire without switching, the CPU releases", func() error {
		return t.waits(acquireCases[0], 0, func(v uint32) error { word(t.pageM, semOffset).Store(v); return nil })
	})
}

func (t *semTest) releaseByB(v uint32) error {
	var b push.Buffer
	b.Semaphore(t.va(), v, push.SemRelease|push.SemOneWord)
	if err := t.b.Submit(&b, t.refs()...); err != nil {
		return err
	}
	return t.b.Flush()
}

func (t *semTest) marked() bool { return word(t.markM, 0).Load() == ^uint32(markClear) }

func (t *semTest) passesAtOnce(c acquireCase) error {
	t.arm()
	word(t.pageM, semOffset).Store(c.passes)
	var b push.Buffer
	b.Semaphore(t.va(), c.payload, c.op|push.SemSwitch)
	b.Semaphore(t.mark.VA(), ^uint32(markClear), push.SemRelease|push.SemOneWord)
	if err := t.a.Submit(&b, t.refs()...); err != nil {
		return err
	}
	if err := t.a.Flush(); err != nil {
		return err
	}
	if !t.marked() {
		return errors.New("the fence came, the mark behind the acquire did not")
	}
	return nil
}

// waits verifies that an acquire holds its channel until release gives the value.
func (t *semTest) waits(c acquireCase, flags uint32, release func(uint32) error) (err error) {
	// Whatever happens, the channel must not stay stuck.
	defer func() {
		word(t.pageM, semOffset).Store(c.passes)
		err = errors.Join(err, t.a.Flush())
	}()
	t.arm()
	word(t.pageM, semOffset).Store(c.held)
	var b push.Buffer
	b.Semaphore(t.va(), c.payload, c.op|flags)
	b.Semaphore(t.mark.VA(), ^uint32(markClear), push.SemRelease|push.SemOneWord)
	if err := t.a.Submit(&b, t.refs()...); err != nil {
		return err
	}
	time.Sleep(t.hold)
	if t.marked() {
		return fmt.Errorf("passed at once with %#x in memory, payload %#x", c.held, c.payload)
	}
	if err := release(c.near); err != nil {
		return err
	}
	time.Sleep(t.hold)
	if t.marked() {
		return fmt.Errorf("passed with %#x in memory, payload %#x", c.near, c.payload)
	}
	if err := release(c.passes); err != nil {
		return err
	}
	for end := time.Now().Add(patience); !t.marked(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			return fmt.Errorf("still waiting %v after %#x was released, payload %#x", patience, c.passes, c.payload)
		}
	}
	return nil
}

// reports are the semaphores at the end of the 3D and compute pipelines.
func (t *semTest) reports() {
	for _, o := range []push.Object{object3D, objectCompute} {
		for _, c := range []struct {
			kind string
			op   uint32
		}{{"one", push.ReportRelease | push.ReportOneWord}, {"four", push.ReportRelease}} {
			payload := uint32(t.seed.next())
			t.check(fmt.Sprintf("report of %04x, %s word(s)", o.Class, c.kind), func() error {
				if err := t.a.use(o); err != nil {
					return err
				}
				return t.released(c.kind, payload, func(b *push.Buffer) { b.Report(o.Subchan, t.va(), payload, c.op) })
			})
		}
	}
}

func (t *semTest) rest() {
	t.check("reference counter", t.reference)
	t.check("non-stall interrupt", t.nonStall)
	t.check("yield, flush and no-op", func() error {
		return t.released("one", 5, func(b *push.Buffer) {
			b.Inc(subchanM2MF, push.HostNop, 0)
			b.Inc(subchanM2MF, push.HostFBFlush, 0)
			b.Inc(subchanM2MF, push.HostYield, 0)
			b.Raw(0, 0) // zero words are no-ops too
			b.Semaphore(t.va(), 5, push.SemRelease|push.SemOneWord)
		})
	})
}

func (t *semTest) reference() error {
	if _, err := t.env.Reference(t.a.ch.ID()); err != nil {
		return errSkip{"USERD: " + err.Error()}
	}
	want := uint32(t.seed.next())
	var b push.Buffer
	b.Inc(subchanM2MF, push.HostSetReference, want)
	if err := t.a.Submit(&b); err != nil {
		return err
	}
	if err := t.a.Flush(); err != nil {
		return err
	}
	got, err := t.env.Reference(t.a.ch.ID())
	if err == nil && got != want {
		err = fmt.Errorf("USERD of channel %d has reference %#x, want %#x", t.a.ch.ID(), got, want)
	}
	return err
}

// nonStall asks for an interrupt while a waiter sleeps on a fence: the kernel enables
// the event only then.
func (t *semTest) nonStall() error {
	before, err := t.env.GPUInterrupts()
	if err != nil {
		return err
	}
	c := acquireCases[0]
	t.arm()
	word(t.pageM, semOffset).Store(c.held)
	var b push.Buffer
	b.Semaphore(t.va(), c.payload, c.op|push.SemSwitch)
	b.Inc(subchanM2MF, push.HostNonStall, 0)
	if err := t.a.Submit(&b, t.refs()...); err != nil {
		return err
	}
	// The next check may use the page, or Close unmap it, only after this store.
	stored := make(chan struct{})
	time.AfterFunc(t.hold, func() { word(t.pageM, semOffset).Store(c.passes); close(stored) })
	err = t.a.Flush()
	<-stored
	if err != nil {
		return err
	}
	after, err := t.env.GPUInterrupts()
	if err == nil && after <= before {
		err = fmt.Errorf("no interrupt came while a process slept on a fence: %d before, %d after", before, after)
	}
	return err
}
