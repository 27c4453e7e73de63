package gpu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/push"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// fakeGPU is an interpreter of push buffers, written apart from the code that makes
// them and from the CPU's reference: the other side of these tests. A pump goroutine
// retries channels whose acquire failed.
type fakeGPU struct {
	mu       sync.Mutex
	channels []*fakeChannel
	nextVA   uint64
	log      []proto.KmsgRecord
	irqs     uint64
	start    time.Time

	// Faults of its own, for the tests of the tests.
	noop     bool // engines do nothing
	tilesOff bool // block-linear surfaces are taken for linear ones
	shift    bool // copies land one byte too far
	eager    bool // acquires never wait
	forgets  bool // releases write nothing
	immortal bool // nothing kills a channel
	noPGRAPH bool // engine errors are reported by the PBDMA

	kernel drm.Kernel
	stop   chan struct{}
	wg     sync.WaitGroup
}

func newFakeGPU(release string) *fakeGPU {
	k, err := drm.KernelOf(release)
	if err != nil {
		panic(err)
	}
	g := &fakeGPU{nextVA: 0x100000, start: time.Now(), kernel: k, stop: make(chan struct{})}
	g.wg.Go(func() {
		t := time.NewTicker(time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-g.stop:
				return
			case <-t.C:
				g.mu.Lock()
				g.pump()
				g.mu.Unlock()
			}
		}
	})
	return g
}

func (g *fakeGPU) close() { close(g.stop); g.wg.Wait() }

func (g *fakeGPU) env() *Env {
	return &Env{
		Open:    func(string) (Device, error) { return &fakeDevice{g: g}, nil },
		Release: g.kernel.Line + ".0-fake",
		Interrupts: func() (uint64, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.irqs, nil
		},
		Reference: func(channel int) (uint32, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.channels[channel].ref, nil
		},
		Mark: func() (uint64, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return uint64(len(g.log)), nil
		},
		Log: func(after uint64) ([]proto.KmsgRecord, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return append([]proto.KmsgRecord(nil), g.log[after:]...), nil
		},
	}
}

func (g *fakeGPU) say(level int, format string, a ...any) {
	g.log = append(g.log, proto.KmsgRecord{Seq: uint64(len(g.log) + 1), Level: level, Text: "nouveau: " + fmt.Sprintf(format, a...)})
}

// pump lets every channel go as far as it can. The lock is held.
func (g *fakeGPU) pump() {
	for progress := true; progress; {
		progress = false
		for _, c := range g.channels {
			for c.step() {
				progress = true
			}
		}
	}
}

type fakeDevice struct {
	g       *fakeGPU
	buffers []*fakeBuffer
}

func (d *fakeDevice) Version() (drm.Version, error) {
	return drm.Version{Name: "nouveau", Major: 1, Minor: 4}, nil
}
func (d *fakeDevice) Close() error { return nil }

func (d *fakeDevice) Param(p uint64) (uint64, error) {
	switch p {
	case drm.ParamChipset:
		return 0xc0, nil
	case drm.ParamFBSize:
		return 8 << 20, nil
	case drm.ParamGraphUnits:
		return 4 | 14<<8 | 1<<32, nil
	case drm.ParamPTimer:
		return uint64(time.Since(d.g.start)), nil
	case drm.ParamVRAMBARSize:
		return 0, &drm.Error{Op: "GETPARAM", Errno: unix.EINVAL}
	}
	return 1, nil
}

func (d *fakeDevice) NewBuffer(size uint64, domains drm.Domain, _ drm.BufferOptions) (Buffer, error) {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	size = (size + 4095) &^ 4095
	b := &fakeBuffer{d: d, va: d.g.nextVA, domain: domains}
	if domains&drm.DomainVRAM != 0 {
		b.domain = drm.DomainVRAM
	}
	// Words must be aligned for the atomics.
	words := make([]uint64, size/8)
	b.mem = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
	d.g.nextVA += size + 1<<16
	d.buffers = append(d.buffers, b)
	return b, nil
}

func (d *fakeDevice) NewChannel() (Channel, error) {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	c := &fakeChannel{d: d, id: len(d.g.channels)}
	d.g.channels = append(d.g.channels, c)
	return c, nil
}

// at finds n bytes at a VA, or nil. The buffer of the last hit is tried first.
func (d *fakeDevice) at(va, n uint64) []byte {
	for i, b := range d.buffers {
		if va >= b.va && va+n <= b.va+uint64(len(b.mem)) {
			d.buffers[0], d.buffers[i] = d.buffers[i], d.buffers[0]
			return b.mem[va-b.va : va-b.va+n : va-b.va+n]
		}
	}
	return nil
}

type fakeBuffer struct {
	d      *fakeDevice
	va     uint64
	mem    []byte
	domain drm.Domain
	users  []*fakeJob
}

func (b *fakeBuffer) Size() uint64           { return uint64(len(b.mem)) }
func (b *fakeBuffer) VA() uint64             { return b.va }
func (b *fakeBuffer) Bytes() ([]byte, error) { return b.mem, nil }
func (b *fakeBuffer) Domain() (drm.Domain, error) {
	b.d.g.mu.Lock()
	defer b.d.g.mu.Unlock()
	return b.domain, nil
}

func (b *fakeBuffer) Busy(write bool) (bool, error) {
	b.d.g.mu.Lock()
	defer b.d.g.mu.Unlock()
	b.d.g.pump()
	for _, j := range b.users {
		if !j.done && (write || j.writes[b]) {
			return true, nil
		}
	}
	b.users = nil
	return false, nil
}

func (b *fakeBuffer) Wait(write bool) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(500 * time.Microsecond) {
		late := time.Now().After(end)
		if busy, _ := b.Busy(write); !busy {
			return nil
		}
		if late {
			return &drm.Error{Op: "GEM_CPU_PREP", Errno: unix.EBUSY}
		}
	}
}

func (b *fakeBuffer) Close() error {
	b.d.g.mu.Lock()
	defer b.d.g.mu.Unlock()
	for i, o := range b.d.buffers {
		if o == b {
			b.d.buffers = append(b.d.buffers[:i], b.d.buffers[i+1:]...)
			return nil
		}
	}
	return &drm.Error{Op: "GEM_CLOSE", Errno: unix.EINVAL}
}

// fakeJob is one submission. It runs after those that its buffers depend on.
type fakeJob struct {
	words  []uint32
	at     int
	after  []*fakeJob
	writes map[*fakeBuffer]bool
	done   bool
}

type fakeChannel struct {
	d       *fakeDevice
	id      int
	queue   []*fakeJob
	killed  bool
	ref     uint32
	classes [8]uint32
	regs    [8]map[push.Method]uint32
	inline  fakeInline
}

type fakeInline struct {
	sc   int
	data []byte
}

func (c *fakeChannel) ID() int      { return c.id }
func (c *fakeChannel) Close() error { return nil }
func (c *fakeChannel) Classes() ([]drm.Class, error) {
	return []drm.Class{{ID: push.ClassM2MF}, {ID: push.Class3D}}, nil
}
func (c *fakeChannel) NewObject(class uint32) (uint32, error) {
	if class == push.ClassNoSuch {
		return 0, &drm.Error{Op: "GROBJ_ALLOC", Errno: unix.EINVAL}
	}
	return class, nil
}
func (c *fakeChannel) FreeObject(uint32) error            { return nil }
func (c *fakeChannel) NewObjectNVIF(uint32, uint64) error { return nil }

func (c *fakeChannel) Alive() error {
	c.d.g.mu.Lock()
	defer c.d.g.mu.Unlock()
	return c.dead()
}

func (c *fakeChannel) dead() error {
	if c.killed {
		return &drm.Error{Op: "GEM_PUSHBUF", Errno: unix.ENODEV}
	}
	return nil
}

func (c *fakeChannel) Submit(refs []Ref, segments []drm.Segment, _ bool) error {
	c.d.g.mu.Lock()
	defer c.d.g.mu.Unlock()
	if err := c.dead(); err != nil {
		return err
	}
	j := &fakeJob{writes: map[*fakeBuffer]bool{}}
	for _, r := range refs {
		b := r.Buffer.(*fakeBuffer)
		for _, u := range b.users {
			if !u.done && (r.Write || u.writes[b]) {
				j.after = append(j.after, u)
			}
		}
		b.users = append(b.users, j)
		j.writes[b] = r.Write
		if b.domain&r.Valid == 0 {
			b.domain = r.Valid
		}
	}
	for _, s := range segments {
		m := refs[s.Ref].Buffer.(*fakeBuffer).mem[s.Offset : s.Offset+s.Bytes]
		for ; len(m) > 0; m = m[4:] {
			j.words = append(j.words, uint32(m[0])|uint32(m[1])<<8|uint32(m[2])<<16|uint32(m[3])<<24)
		}
	}
	c.queue = append(c.queue, j)
	c.d.g.pump()
	return nil
}

// step runs the head of the queue as far as it goes; false when nothing moved.
func (c *fakeChannel) step() bool {
	if len(c.queue) == 0 {
		return false
	}
	j := c.queue[0]
	for _, a := range j.after {
		if !a.done {
			return false
		}
	}
	start := j.at
	for j.at < len(j.words) && !c.killed {
		if !c.command(j) {
			return j.at > start
		}
	}
	j.done = true
	c.queue = c.queue[1:]
	c.d.g.irqs++ // the kernel's fence interrupt
	if c.killed {
		for _, j := range c.queue {
			j.done = true
		}
		c.queue = nil
	}
	return true
}

// command runs one header and its data; false when an acquire must be tried again.
func (c *fakeChannel) command(j *fakeJob) bool {
	h := j.words[j.at]
	if h == 0 {
		j.at++
		return true
	}
	op, n, sc, m := h>>29, int(h>>16&0x1fff), int(h>>13&7), push.Method(h&0xfff)*4
	switch op {
	case 4:
		c.method(sc, m, uint32(n))
		j.at++
		return true
	case 1, 3, 5:
	default:
		j.at = len(j.words)
		c.offend(drm.OffenceBadHeader, "PBDMA0: 00040000 [] ch %d", c.id)
		return true
	}
	for i := 0; i < n && !c.killed; i++ {
		at := m
		if op == 1 {
			at += push.Method(4 * i)
		} else if op == 5 && i > 0 {
			at += 4
		}
		if !c.method(sc, at, j.words[j.at+1+i]) {
			return false // methods of a semaphore may safely be played again
		}
	}
	j.at += 1 + n
	return true
}

func (c *fakeChannel) offend(o drm.Offence, format string, a ...any) {
	g := c.d.g
	if g.noPGRAPH && engineOffence[o] {
		o, format = drm.OffenceHostMethod, "fifo: PBDMA0: [ILLEGAL_MTHD] ch %d"
	}
	g.say(3, format, a...)
	if !g.kernel.KilledBy[o] || g.immortal {
		return
	}
	for _, f := range g.kernel.Faults {
		g.say(3, "%s", f)
	}
	c.killed = true
}

func (c *fakeChannel) fault(va uint64) { c.offend(drm.OffenceMMUFault, "fifo: fault at %x", va) }

// store writes one word as a GPU does: whole.
func (c *fakeChannel) store(va uint64, v uint32) {
	m := c.d.at(va, 4)
	if m == nil {
		c.fault(va)
		return
	}
	(*atomic.Uint32)(unsafe.Pointer(&m[0])).Store(v)
}

func (c *fakeChannel) release(va uint64, payload uint32, one bool) {
	if c.d.g.forgets {
		return
	}
	c.store(va, payload)
	if one || c.killed {
		return
	}
	now := uint64(time.Since(c.d.g.start))
	c.store(va+4, 0)
	c.store(va+8, uint32(now))
	c.store(va+12, uint32(now>>32))
}

func (c *fakeChannel) method(sc int, m push.Method, v uint32) bool {
	if c.regs[sc] == nil {
		c.regs[sc] = map[push.Method]uint32{}
	}
	r := c.regs[sc]
	if m < 0x100 {
		return c.host(sc, m, v)
	}
	class := c.classes[sc]
	switch {
	case class == 0:
		c.offend(drm.OffenceEmptySubchan, "fifo: PBDMA0: [EMPTY_SUBC] ch %d", c.id)
		return true
	case m == push.GRNoSuch:
		c.offend(drm.OffenceEngineMethod, " gr: ILLEGAL_MTHD ch %d", c.id)
		return true
	}
	r[m] = v
	if c.d.g.noop {
		return true
	}
	switch {
	case class == push.ClassM2MF:
		c.m2mf(sc, m, v)
	case (class == push.ClassCE0 || class == push.ClassCE1) && m == push.CEExec:
		c.ce(r, v)
	case (class == push.Class3D || class == push.ClassCompute) && m == push.ReportSemaphoreD:
		c.release(va(r, push.ReportSemaphoreA), r[push.ReportSemaphoreC], v>>28&1 == 1)
	}
	return true
}

func va(r map[push.Method]uint32, m push.Method) uint64 { return uint64(r[m])<<32 | uint64(r[m+4]) }

func (c *fakeChannel) host(sc int, m push.Method, v uint32) bool {
	r := c.regs[sc]
	r[m] = v
	switch m {
	case push.HostSetObject:
		if v&0xffff == push.ClassNoSuch {
			c.offend(drm.OffenceEngineClass, " gr: ILLEGAL_CLASS ch %d", c.id)
			return true
		}
		c.classes[sc] = v & 0xffff
	case push.HostSemaphoreD:
		return c.semaphore(r, v)
	case push.HostNonStallIntr:
		c.d.g.irqs++
	case push.HostSetReference:
		c.ref = v
	case push.HostNoSuch:
		c.offend(drm.OffenceHostMethod, "fifo: PBDMA0: [ILLEGAL_MTHD] ch %d", c.id)
	}
	return true
}

func (c *fakeChannel) semaphore(r map[push.Method]uint32, v uint32) bool {
	at, payload := va(r, push.HostSemaphoreA), r[push.HostSemaphoreC]
	if v&0xf == push.SemRelease {
		c.release(at, payload, v&push.SemOneWord != 0)
		return true
	}
	m := c.d.at(at, 4)
	if m == nil {
		c.fault(at)
		return true
	}
	mem := (*atomic.Uint32)(unsafe.Pointer(&m[0])).Load()
	switch v & 0xf {
	case push.SemAcquireEqual:
		return mem == payload || c.d.g.eager
	case push.SemAcquireGE:
		return int32(mem-payload) >= 0 || c.d.g.eager
	}
	return mem&payload != 0 || c.d.g.eager
}
