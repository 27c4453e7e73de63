package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/surface"
)

// guard is how many random bytes stand before and after each side of a copy.
const guard = 4096

// rect is one side of a copy. It knows where byte i of line l lies in its buffer.
type rect struct {
	domain drm.Domain
	size   uint64 // of the buffer
	base   uint64 // of the surface in the buffer
	pitch  uint32
	layout *surface.Layout // nil: pitch
	x      uint32          // bytes
	y, z   uint32
	tiling *push.Tiling
}

func (r *rect) index(line, i uint32) uint64 {
	if r.layout == nil {
		return r.base + uint64(line)*uint64(r.pitch) + uint64(i)
	}
	return r.base + r.layout.Offset(r.x+i, r.y+line, r.z)
}

func (r *rect) surface(b Buffer) push.Surface {
	if r.layout == nil {
		return push.Surface{VA: b.VA() + r.base, Pitch: r.pitch}
	}
	return push.Surface{VA: b.VA() + r.base, Tiling: r.tiling}
}

// copyCase is one copy of a rectangle of bytes. The source holds random data, the destination is
// poisoned first, and the whole destination buffer is compared, guard bands and gaps between lines
// included.
type copyCase struct {
	Name   string
	Engine string // "m2mf", "ce0", "ce1"
	From   string // "vram", "gart"
	To     string

	LineBytes, Lines     uint32 // elements, with Format
	SrcPitch, DstPitch   uint32 // 0: line bytes
	SrcOffset, DstOffset uint32 // added to the buffer's start and its guard

	Inline             bool         // M2MF: the data stands in the push buffer
	SrcTiled, DstTiled *push.Tiling // width and x in elements, with Format
	Format             *shuffle     // CE only

	Semaphore string // at the copy's end: "", "one" word, "four" words
	Times     int    // that it is submitted before the wait; 0: once
}

// shuffle is the copy engine's component shuffle.
type shuffle struct {
	Bytes   int      // of a component, 1 to 4
	Src     int      // components of a source element, 1 to 4
	Swizzle []uint32 // for each component out: 0-3 source, 4-5 constant, 6 zero
	Const   [2]uint32
}

// job is a copy with its input and its expected output.
type job struct {
	c        copyCase
	engine   push.Engine
	src, dst rect
	srcLine  uint32 // bytes
	dstLine  uint32
	source   []byte // the source buffer
	want     []byte // the destination buffer afterwards
	poison   []byte // and before
	inline   []uint32
	payload  uint32
}

// plan computes a copy on the CPU.
func plan(c copyCase, seed uint64) (*job, error) {
	e, err := engineOf(c.Engine)
	if err != nil {
		return nil, err
	}
	j := &job{c: c, engine: e, srcLine: c.LineBytes, dstLine: c.LineBytes, payload: uint32(seed) | 1}
	srcCPP, dstCPP := uint32(1), uint32(1)
	if f := c.Format; f != nil {
		srcCPP, dstCPP = uint32(f.Src*f.Bytes), uint32(len(f.Swizzle)*f.Bytes)
		j.srcLine, j.dstLine = c.LineBytes*srcCPP, c.LineBytes*dstCPP
	}
	if j.src, err = newRect(c.From, c.SrcOffset, c.SrcPitch, j.srcLine, c.Lines, srcCPP, c.SrcTiled); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if j.dst, err = newRect(c.To, c.DstOffset, c.DstPitch, j.dstLine, c.Lines, dstCPP, c.DstTiled); err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	j.compute(seed)
	return j, nil
}

func newRect(domain string, offset, pitch, line, lines, cpp uint32, t *push.Tiling) (rect, error) {
	d, err := domainOf(domain)
	if err != nil {
		return rect{}, err
	}
	r := rect{domain: d, base: guard + uint64(offset), pitch: pitch}
	if t == nil {
		if r.pitch == 0 {
			r.pitch = line
		}
		r.size = r.base + uint64(lines-1)*uint64(r.pitch) + uint64(line) + guard
		return r, nil
	}
	l := surface.Layout{Width: t.Width * cpp, Height: t.Height, Depth: t.Depth, BlockH: t.BlockH, BlockD: t.BlockD}
	if err := l.Validate(); err != nil {
		return rect{}, err
	}
	if t.X*cpp+line > l.Width || t.Y+lines > l.Height || t.Z >= l.Depth {
		return rect{}, fmt.Errorf("rectangle at %d,%d,%d of %dx%d leaves the surface of %dx%dx%d", t.X, t.Y, t.Z, line, lines, l.Width, l.Height, l.Depth)
	}
	r.layout, r.x, r.y, r.z = &l, t.X*cpp, t.Y, t.Z
	r.tiling, r.pitch = t, 0
	r.size = r.base + l.Size() + guard
	return r, nil
}

// compute is the copy, done by the CPU.
func (j *job) compute(seed uint64) {
	j.source = make([]byte, j.src.size)
	fill(j.source, seed)
	j.want = make([]byte, j.dst.size)
	fill(j.want, seed+1)
	j.poison = bytes.Clone(j.want)
	for l := range j.c.Lines {
		for i := range j.dstLine {
			at := j.dst.index(l, i)
			j.want[at] = j.value(l, i)
			j.poison[at] = ^j.want[at]
		}
	}
	if j.c.Inline {
		j.inlineWords()
	}
}

// value is byte i of line l of the expected output.
func (j *job) value(l, i uint32) byte {
	f := j.c.Format
	if f == nil {
		return j.source[j.src.index(l, i)]
	}
	size := uint32(f.Bytes)
	cpp := size * uint32(len(f.Swizzle))
	element, component, b := i/cpp, i%cpp/size, i%size
	switch s := f.Swizzle[component]; s {
	case push.SwzConst0, push.SwzConst1:
		return byte(f.Const[s-push.SwzConst0] >> (8 * b))
	case push.SwzZero:
		return 0
	default:
		return j.source[j.src.index(l, element*size*uint32(f.Src)+s*size+b)]
	}
}

func (j *job) inlineWords() {
	var data []byte
	for l := range j.c.Lines {
		for i := range j.srcLine {
			data = append(data, j.source[j.src.index(l, i)])
		}
	}
	for len(data)%4 != 0 {
		data = append(data, 0xee)
	}
	for ; len(data) > 0; data = data[4:] {
		j.inline = append(j.inline, binary.LittleEndian.Uint32(data))
	}
}

// emit writes the copy's commands. sem is where its semaphore lies.
func (j *job) emit(b *push.Buffer, src, dst Buffer, sem uint64) {
	sc, d := j.engine.Object().Subchan, j.dst.surface(dst)
	if j.engine != push.M2MF {
		flags := uint32(0)
		if f := j.c.Format; f != nil {
			flags = push.CEExecFormat
			b.Inc(sc, push.CEFormat, push.CEFormatWord(f.Bytes, f.Src, f.Swizzle...), f.Const[0], f.Const[1])
		}
		var q *push.CEQuery
		if j.c.Semaphore != "" {
			q = &push.CEQuery{VA: sem, Counter: j.payload, Short: j.c.Semaphore == "one"}
		}
		b.CECopy(sc, j.src.surface(src), d, j.c.LineBytes, j.c.Lines, flags, q)
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
	if j.c.Inline {
		b.M2MFInline(sc, d, j.c.LineBytes, j.c.Lines, flags, j.inline)
		return
	}
	b.M2MFCopy(sc, j.src.surface(src), d, j.c.LineBytes, j.c.Lines, flags)
}

// run does the job on the GPU and compares.
func (k *copier) run(j *job) (out proto.CopyOutcome) {
	out.Name, out.Bytes = j.c.Name, uint64(j.dstLine)*uint64(j.c.Lines)*uint64(max(j.c.Times, 1))
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
	if !j.c.Inline {
		if err := k.upload(j.engine, src, j.src.domain, j.source); err != nil {
			return nil, 0, fmt.Errorf("staging the source: %w", err)
		}
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
func (e *Env) M2MF(a proto.CopyArgs) (proto.CopyResult, error) {
	return e.copies(a, m2mfSuite(a.Quick), "m2mf")
}

// CE copies with both copy engines.
func (e *Env) CE(a proto.CopyArgs) (proto.CopyResult, error) {
	return e.copies(a, append(ceSuite("ce0", a.Quick), ceSuite("ce1", a.Quick)...), "ce0", "ce1")
}

// copies runs a suite and verifies each case. The error names the first that failed.
func (e *Env) copies(a proto.CopyArgs, cases []copyCase, engines ...string) (res proto.CopyResult, err error) {
	if a.Bytes > 0 {
		if a.Bytes%4096 != 0 || a.Bytes > maxSized {
			return res, fmt.Errorf("copies of %d bytes: want whole pages of 4096, and %d MiB at most", a.Bytes, maxSized>>20)
		}
		cases = sizedSuite(a.Bytes, engines...)
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
