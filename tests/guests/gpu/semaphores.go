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

// semTest is two channels of one client with a page: the semaphore under test, and a mark that a
// channel sets once it has passed. The page is on the validation lists for reading only, or the
// kernel would order the channels itself.
type semTest struct {
	dev  Device
	a, b *Stream
	page Buffer
	m    []byte
	seed random
	res  proto.SemaphoresResult
}

const (
	semOffset  = 0x40  // of the semaphore in its page
	semWords   = 64    // that are guarded
	markOffset = 0x800 // behind the guarded words
	markClear  = 0x0badf00d
	hold       = 20 * time.Millisecond // for which an acquire must not pass
	patience   = time.Minute           // for what is waited for at all; only a failure uses it up
)

// Semaphores checks the host's and the engines' semaphores in all modes.
func (e *Env) Semaphores(a proto.SemaphoresArgs) (_ proto.SemaphoresResult, err error) {
	t := &semTest{seed: random(a.Seed)}
	if t.dev, err = e.Open(); err != nil {
		return t.res, err
	}
	defer closeInto(t.dev, &err)
	if t.page, err = t.dev.NewBuffer(4096, drm.DomainGART); err != nil {
		return t.res, err
	}
	defer closeInto(t.page, &err)
	if t.m, err = t.page.Bytes(); err != nil {
		return t.res, err
	}
	for _, s := range []**Stream{&t.a, &t.b} {
		if *s, err = NewStream(t.dev); err != nil {
			return t.res, err
		}
		defer closeInto(*s, &err)
	}
	t.releases()
	for _, c := range acquireCases {
		t.check("acquire "+c.name+", another channel releases", func() error { return t.waits(c, push.SemSwitch, t.releaseByB) })
	}
	t.check("acquire without switching, the CPU releases", func() error { return t.waits(acquireCases[0], 0, t.releaseByCPU) })
	t.check("non-stall interrupt", func() error { return t.nonStall(e) })
	if n := len(t.res.Failed); n > 0 {
		err = fmt.Errorf("%d of %d semaphore checks failed; the first: %s", n, t.res.Checks, t.res.Failed[0])
	}
	return t.res, err
}

func (t *semTest) check(name string, f func() error) {
	t.res.Checks++
	if err := f(); err != nil {
		t.res.Failed = append(t.res.Failed, name+": "+err.Error())
	}
}

// word is a 32-bit word that the GPU writes while the CPU looks.
func word(m []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&m[off]))
}

func (t *semTest) semaphore() *atomic.Uint32 { return word(t.m, semOffset) }

func (t *semTest) va() uint64 { return t.page.VA() + semOffset }

func (t *semTest) submit(s *Stream, b *push.Buffer) error {
	return s.Submit(b, ref(t.page, drm.DomainGART, false))
}

func (t *semTest) arm() {
	for i := range semWords {
		word(t.m, 4*i).Store(semFill(i))
	}
	word(t.m, markOffset).Store(markClear)
}

// semFill is what the words around a semaphore hold.
func semFill(i int) uint32 { return 0xdead0000 | uint32(i) }

func checkSemaphoreWords(m []byte, kind string, payload uint32) error {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(m[4*i:]) }
	const first = semOffset / 4
	written := map[string]int{"": 0, "one": 1, "four": 4}[kind]
	for i := range semWords {
		switch at := i - first; {
		case at < 0 || at >= written:
			if word(i) != semFill(i) {
				return fmt.Errorf("word %d by the semaphore is %#x: nothing may write it", at, word(i))
			}
		case at == 0 && word(i) != payload:
			return fmt.Errorf("semaphore holds %#x, want %#x", word(i), payload)
		case at == 1 && word(i) != 0:
			return fmt.Errorf("semaphore word 1 is %#x, want 0", word(i))
		}
	}
	if written == 4 && word(first+2) == semFill(first+2) && word(first+3) == semFill(first+3) {
		return errors.New("semaphore has no time")
	}
	return nil
}

// releases are those of the host, and of the ends of the 3D and compute pipelines.
func (t *semTest) releases() {
	for _, c := range []struct {
		kind   string
		object push.Object // zero: the host
		op     uint32
	}{
		{"four", push.Object{}, push.SemRelease},
		{"one", push.Object{}, push.SemRelease | push.SemOneWord},
		{"four", object3D, push.ReportRelease},
		{"one", objectCompute, push.ReportRelease | push.ReportOneWord},
	} {
		payload := uint32(t.seed.next())
		t.check(fmt.Sprintf("release of %s word(s), class %04x, operation %#x", c.kind, c.object.Class, c.op), func() error {
			t.arm()
			var b push.Buffer
			if c.object.Class == 0 {
				b.Semaphore(t.va(), payload, c.op)
			} else {
				if err := t.a.use(c.object); err != nil {
					return err
				}
				b.Report(c.object.Subchan, t.va(), payload, c.op)
			}
			if err := t.submit(t.a, &b); err != nil {
				return err
			}
			if err := t.a.Flush(); err != nil {
				return err
			}
			return checkSemaphoreWords(t.m, c.kind, payload)
		})
	}
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
	{"and", push.SemAcquireAnd, 0x30, 0x0f, 0x40, 0x20},
}

// acquire submits an acquire of a value that is not there yet unless held passes, and a mark behind it.
func (t *semTest) acquire(c acquireCase, flags, held uint32) error {
	t.arm()
	t.semaphore().Store(held)
	var b push.Buffer
	b.Semaphore(t.va(), c.payload, c.op|flags)
	b.Semaphore(t.page.VA()+markOffset, ^uint32(markClear), push.SemRelease|push.SemOneWord)
	return t.submit(t.a, &b)
}

func (t *semTest) marked() bool { return word(t.m, markOffset).Load() == ^uint32(markClear) }

func (t *semTest) releaseByCPU(v uint32) error {
	t.semaphore().Store(v)
	return nil
}

func (t *semTest) releaseByB(v uint32) error {
	var b push.Buffer
	b.Semaphore(t.va(), v, push.SemRelease|push.SemOneWord)
	if err := t.submit(t.b, &b); err != nil {
		return err
	}
	return t.b.Flush()
}

// waits verifies that an acquire holds its channel until release gives the value.
func (t *semTest) waits(c acquireCase, flags uint32, release func(uint32) error) (err error) {
	// Whatever happens, the channel must not stay stuck.
	defer func() {
		t.semaphore().Store(c.passes)
		err = errors.Join(err, t.a.Flush())
	}()
	if err := t.acquire(c, flags, c.held); err != nil {
		return err
	}
	for _, v := range []uint32{c.held, c.near} {
		if err := release(v); err != nil {
			return err
		}
		time.Sleep(hold)
		if t.marked() {
			return fmt.Errorf("passed with %#x in memory, payload %#x", v, c.payload)
		}
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

// nonStall waits for a fence behind an acquire: the kernel sleeps, and enables the event only then.
func (t *semTest) nonStall(e *Env) error {
	before, err := e.GPUInterrupts()
	if err != nil {
		return err
	}
	c := acquireCases[0]
	if err := t.acquire(c, push.SemSwitch, c.held); err != nil {
		return err
	}
	var b push.Buffer
	b.Inc(subchanM2MF, push.HostNonStall, 0)
	err = t.submit(t.a, &b)
	// Close may unmap the page only after this store.
	stored := make(chan struct{})
	time.AfterFunc(hold, func() { t.semaphore().Store(c.passes); close(stored) })
	err = errors.Join(err, t.a.Flush())
	<-stored
	if err != nil {
		return err
	}
	after, err := e.GPUInterrupts()
	if err == nil && after <= before {
		err = fmt.Errorf("no interrupt came while a process slept on a fence: %d before, %d after", before, after)
	}
	return err
}
