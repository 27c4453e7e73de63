package gpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// context is a client with a channel that has run something.
type context struct {
	s    client
	page Buffer
}

// Contexts makes clients, each with an address space and a channel that has run one
// submission, and ends them.
func (e *Env) Contexts(a proto.ContextsArgs) (res proto.ContextsResult, err error) {
	var all []*context
	start := time.Now()
	for i := range orInt(a.Count, 1) {
		c := new(context)
		all = append(all, c)
		if err = c.start(e, uint32(i)+1); err != nil {
			err = fmt.Errorf("context %d: %w", i, err)
			break
		}
	}
	res.CreateNS = time.Since(start).Nanoseconds()
	start = time.Now()
	for _, c := range all {
		err = errors.Join(err, c.close())
	}
	res.DestroyNS = time.Since(start).Nanoseconds()
	return res, err
}

func (c *context) start(e *Env, value uint32) (err error) {
	if c.s, err = e.client(); err != nil {
		return err
	}
	if c.page, err = c.s.dev.NewBuffer(4096, drm.DomainGART); err != nil {
		return err
	}
	return c.s.writes(c.page, []uint64{0}, value)
}

func (c *context) close() error {
	var errs []error
	if c.page != nil {
		errs = append(errs, c.page.Close())
	}
	if c.s.Stream != nil {
		errs = append(errs, c.s.Close())
	}
	return errors.Join(errs...)
}

// writes has the GPU write a value at offsets of a buffer in system memory, and sees
// that it did.
func (s *Stream) writes(b Buffer, offsets []uint64, value uint32) error {
	m, err := b.Bytes()
	if err != nil {
		return err
	}
	var p push.Buffer
	for _, off := range offsets {
		word(m, int(off)).Store(^value)
		p.Semaphore(b.VA()+off, value, push.SemRelease|push.SemOneWord)
	}
	if err := s.Submit(&p, ref(b, drm.DomainGART, true)); err != nil {
		return err
	}
	if err := wait(b, false); err != nil {
		return err
	}
	for _, off := range offsets {
		if got := word(m, int(off)).Load(); got != value {
			return fmt.Errorf("at %#x of a buffer is %#x, the GPU should have written %#x", off, got, value)
		}
	}
	return s.ch.Alive()
}

// Bounds of what Tables maps: a guest's memory, and the buffers of one submission.
const (
	tableBytes   = 256 << 20
	tableBuffers = 4096
)

// usedBuffers is through how many buffers the GPU writes, at both ends of each.
const usedBuffers = 32

// Tables maps buffers of system memory into an address space that a channel uses, has
// the GPU write through some of them, and unmaps them.
func (e *Env) Tables(a proto.TablesArgs) (res proto.TablesResult, err error) {
	if a.Buffers < 1 || a.Buffers > tableBuffers || a.Bytes < 4096 || a.Bytes%4096 != 0 || a.Bytes > tableBytes/uint64(a.Buffers) {
		return res, fmt.Errorf("%d buffers of %d bytes: want 1 to %d, of whole pages of 4096 bytes, and %d MiB at most", a.Buffers, a.Bytes, tableBuffers, tableBytes>>20)
	}
	s, err := e.client()
	if err != nil {
		return res, err
	}
	defer closeInto(s, &err)
	var all []Buffer
	start := time.Now()
	for range a.Buffers {
		b, nerr := s.dev.NewBuffer(a.Bytes, drm.DomainGART)
		if nerr != nil {
			err = fmt.Errorf("buffer %d: %w", len(all), nerr)
			break
		}
		all = append(all, b)
	}
	res.MapNS = time.Since(start).Nanoseconds()
	if err == nil {
		start = time.Now()
		step := max(len(all)/usedBuffers, 1)
		for i := 0; i < len(all) && err == nil; i += step {
			if err = s.writes(all[i], []uint64{0, a.Bytes - 4}, uint32(i)+1); err != nil {
				err = fmt.Errorf("buffer %d: %w", i, err)
			}
		}
		res.UseNS = time.Since(start).Nanoseconds()
	}
	start = time.Now()
	for _, b := range all {
		err = errors.Join(err, b.Close())
	}
	res.UnmapNS = time.Since(start).Nanoseconds()
	return res, err
}
