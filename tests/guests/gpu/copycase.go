package gpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// guard is how many random bytes stand before and after each side of a copy.
const guard = 4096

// rect is one side of a copy.
type rect struct {
	domain drm.Domain
	size   uint64 // of the buffer
	base   uint64 // of the rectangle in the buffer
	pitch  uint32
}

// index is where byte i of a line lies in the buffer.
func (r *rect) index(line, i uint32) uint64 { return r.base + uint64(line)*uint64(r.pitch) + uint64(i) }

func (r *rect) surface(b Buffer) push.Surface {
	return push.Surface{VA: b.VA() + r.base, Pitch: r.pitch}
}

// copyCase is one copy of a rectangle of bytes. The source holds random data, the destination is
// poisoned first, and the whole destination buffer is compared, guard bands and gaps between lines
// included.
type copyCase struct {
	Name   string
	Engine string // "m2mf", "ce0", "ce1"
	From   string // "vram", "gart"
	To     string

	LineBytes, Lines     uint32
	SrcPitch, DstPitch   uint32 // 0: line bytes
	SrcOffset, DstOffset uint32 // added to the buffer's start and its guard

	Semaphore string // at the copy's end: "", "one" word, "four" words
	Times     int    // that it is submitted before the wait; 0: once
}

// job is a copy with its input and its expected output.
type job struct {
	c        copyCase
	engine   push.Engine
	src, dst rect
	source   []byte // the source buffer
	want     []byte // the destination buffer afterwards
	poison   []byte // and before
	payload  uint32
}

// plan computes a copy on the CPU.
func plan(c copyCase, seed uint64) (*job, error) {
	e, err := engineOf(c.Engine)
	if err != nil {
		return nil, err
	}
	j := &job{c: c, engine: e, payload: uint32(seed) | 1}
	if j.src, err = c.rect(c.From, c.SrcOffset, c.SrcPitch); err != nil {
		return nil, err
	}
	if j.dst, err = c.rect(c.To, c.DstOffset, c.DstPitch); err != nil {
		return nil, err
	}
	j.compute(seed)
	return j, nil
}

func (c *copyCase) rect(domain string, offset, pitch uint32) (r rect, err error) {
	r = rect{base: guard + uint64(offset), pitch: cmp.Or(pitch, c.LineBytes)}
	r.size = r.index(c.Lines-1, c.LineBytes) + guard
	r.domain, err = domainOf(domain)
	return r, err
}

// compute is the copy, done by the CPU.
func (j *job) compute(seed uint64) {
	j.source = make([]byte, j.src.size)
	fill(j.source, seed)
	j.want = make([]byte, j.dst.size)
	fill(j.want, seed+1)
	j.poison = bytes.Clone(j.want)
	for l := range j.c.Lines {
		for i := range j.c.LineBytes {
			at := j.dst.index(l, i)
			j.want[at] = j.source[j.src.index(l, i)]
			j.poison[at] = ^j.want[at]
		}
	}
}

// emit writes the copy's commands. sem is where its semaphore lies.
func (j *job) emit(b *push.Buffer, src, dst Buffer, sem uint64) {
	sc, d := j.engine.Object().Subchan, j.dst.surface(dst)
	if j.engine != push.M2MF {
		var q *push.CEQuery
		if j.c.Semaphore != "" {
			q = &push.CEQuery{VA: sem, Counter: j.payload, Short: j.c.Semaphore == "one"}
		}
		b.CECopy(sc, j.src.surface(src), d, j.c.LineBytes, j.c.Lines, q)
		return
	}
	flags := uint32(push.LaunchFlush)
	if j.c.Semaphore != "" {
		b.M2MFSemaphore(sc, sem, j.payload)
		flags = push.LaunchSemaphore
		if j.c.Semaphore == "one" {
			flags |= push.LaunchSemOneWord
		}
	}
	b.M2MFCopy(sc, j.src.surface(src), d, j.c.LineBytes, j.c.Lines, flags)
}

// run does the job on the GPU and compares.
func (k *copier) run(j *job) (out proto.CopyOutcome) {
	out.Name, out.Bytes = j.c.Name, uint64(j.c.LineBytes)*uint64(j.c.Lines)*uint64(max(j.c.Times, 1))
	got, took, err := k.execute(j)
	out.NS = took.Nanoseconds()
	if got != nil {
		if wrong, first := differ(got, j.want); err == nil && wrong > 0 {
			err = fmt.Errorf("%d of %d bytes wrong, the first at %#x (surface at %#x): %#02x, want %#02x",
				wrong, len(j.want), first, j.dst.base, got[first], j.want[first])
		}
	}
	if err != nil {
		out.Error = err.Error()
	}
	out.OK = err == nil
	return out
}

func (k *copier) execute(j *job) (got []byte, took time.Duration, err error) {
	if err := k.s.use(j.engine.Object()); err != nil {
		return nil, 0, err
	}
	dst, err := k.s.dev.NewBuffer(j.dst.size, j.dst.domain)
	if err != nil {
		return nil, 0, err
	}
	defer closeInto(dst, &err)
	src, err := k.s.dev.NewBuffer(j.src.size, j.src.domain)
	if err != nil {
		return nil, 0, err
	}
	defer closeInto(src, &err)
	if err := k.upload(j.engine, src, j.src.domain, j.source); err != nil {
		return nil, 0, fmt.Errorf("staging the source: %w", err)
	}
	if err := k.upload(j.engine, dst, j.dst.domain, j.poison); err != nil {
		return nil, 0, fmt.Errorf("poisoning the destination: %w", err)
	}
	if err := k.armSemaphore(); err != nil {
		return nil, 0, err
	}
	var b push.Buffer
	j.emit(&b, src, dst, k.sem.VA()+semOffset)
	refs := []Ref{ref(src, j.src.domain, false), ref(dst, j.dst.domain, true), ref(k.sem, drm.DomainGART, true)}
	start := time.Now()
	for range max(j.c.Times, 1) {
		if err := k.s.Submit(&b, refs...); err != nil {
			return nil, 0, err
		}
	}
	if err := wait(dst, false); err != nil {
		return nil, 0, err
	}
	took = time.Since(start)
	if err := k.s.ch.Alive(); err != nil {
		return nil, 0, fmt.Errorf("the channel died: %w", err)
	}
	semErr := k.checkSemaphore(j)
	got, err = k.download(j.engine, dst, j.dst.domain, j.want)
	if err != nil {
		return nil, 0, err
	}
	return got, took, errors.Join(semErr, k.peek(dst, j))
}

// closeInto joins the error of a deferred Close into the function's own.
func closeInto(c interface{ Close() error }, err *error) { *err = errors.Join(*err, c.Close()) }

// maxSized bounds the copies of one size.
const maxSized = 4 << 20

// M2MF copies with M2MF.
func (e *Env) M2MF(a proto.CopyArgs) (proto.CopyResult, error) { return e.copies(a, "m2mf") }

// CE copies with both copy engines.
func (e *Env) CE(a proto.CopyArgs) (proto.CopyResult, error) { return e.copies(a, "ce0", "ce1") }

// copies runs the suites of engines and verifies each case. The error names the first that failed.
func (e *Env) copies(a proto.CopyArgs, engines ...string) (res proto.CopyResult, err error) {
	if a.Bytes%4096 != 0 || a.Bytes > maxSized {
		return res, fmt.Errorf("copies of %d bytes: want whole pages of 4096, and %d MiB at most", a.Bytes, maxSized>>20)
	}
	var cases []copyCase
	for _, engine := range engines {
		if a.Bytes > 0 {
			cases = append(cases, sizedSuite(engine, a.Bytes)...)
		} else {
			cases = append(cases, suite(engine, a.Quick)...)
		}
	}
	k, err := e.copier()
	if err != nil {
		return res, err
	}
	defer closeInto(k, &err)
	for i, c := range cases {
		j, planErr := plan(c, a.Seed+uint64(i)*3)
		if planErr != nil {
			return res, fmt.Errorf("%s: %w", c.Name, planErr)
		}
		out := k.run(j)
		res.Cases = append(res.Cases, out)
		if out.OK {
			res.Bytes += out.Bytes
			continue
		}
		res.Failed++
		if err == nil {
			err = fmt.Errorf("%s: %s", out.Name, out.Error)
		}
		if k.s.ch.Alive() != nil {
			return res, errors.Join(err, errors.New("the channel is dead: the cases after it were not run"))
		}
	}
	return res, err
}
