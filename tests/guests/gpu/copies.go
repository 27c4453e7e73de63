package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// routes are all the ways between the two memories.
var routes = [][2]drm.Domain{
	{drm.DomainVRAM, drm.DomainVRAM}, {drm.DomainVRAM, drm.DomainGART},
	{drm.DomainGART, drm.DomainVRAM}, {drm.DomainGART, drm.DomainGART},
}

// sizes are those of copies if a request says none. Pitches, tiles and formats are the engine's own,
// whatever the kernel: its tests and Mesa use them.
var sizes = []uint32{1, 4097, 256 << 10}

const (
	guard      = 4096 // random bytes after a copy, which must stay
	timedTimes = 20   // how often a copy of a size that was asked for is submitted
	maxTimed   = 4 << 20
)

// copyCase is one copy.
type copyCase struct {
	engine push.Engine
	route  [2]drm.Domain
	bytes  uint32
	times  int // that it is submitted before the wait
}

func (c *copyCase) String() string {
	return fmt.Sprintf("%s %s to %s", strings.ToLower(c.engine.String()), c.route[0], c.route[1])
}

// run does the copy on the GPU, compares the destination with what lay after it, and says how long it
// took.
func (k *copier) run(c copyCase, seed uint64) (took time.Duration, err error) {
	want := make([]byte, c.bytes+guard)
	fill(want, seed)
	source, poison := want[:c.bytes], bytes.Clone(want)
	complement(poison[:c.bytes], source)
	if err := k.s.use(c.engine.Object()); err != nil {
		return 0, err
	}
	src, err := k.s.dev.NewBuffer(uint64(c.bytes), c.route[0])
	if err != nil {
		return 0, err
	}
	defer closeInto(src, &err)
	dst, err := k.s.dev.NewBuffer(uint64(len(want)), c.route[1])
	if err != nil {
		return 0, err
	}
	defer closeInto(dst, &err)
	if err := errors.Join(k.upload(c.engine, src, c.route[0], source), k.upload(c.engine, dst, c.route[1], poison)); err != nil {
		return 0, fmt.Errorf("filling the buffers: %w", err)
	}
	var b push.Buffer
	b.Copy(c.engine, dst.VA(), src.VA(), uint64(c.bytes))
	start := time.Now()
	for range c.times {
		if err := k.s.Submit(&b, ref(src, c.route[0], false), ref(dst, c.route[1], true)); err != nil {
			return 0, err
		}
	}
	if err := wait(dst, false); err != nil {
		return 0, err
	}
	took = time.Since(start)
	if err := k.s.ch.Alive(); err != nil {
		return 0, fmt.Errorf("the channel died: %w", err)
	}
	got, err := k.download(c.engine, dst, c.route[1], want)
	if err != nil {
		return 0, err
	}
	if wrong, first := differ(got, want); wrong > 0 {
		return 0, fmt.Errorf("%d of %d bytes wrong, the first at %#x: %#02x, want %#02x", wrong, len(want), first, got[first], want[first])
	}
	if c.route[1] == drm.DomainVRAM {
		return took, k.peek(dst, want)
	}
	return took, nil
}

// closeInto joins the error of a deferred Close into the function's own.
func closeInto(c interface{ Close() error }, err *error) { *err = errors.Join(*err, c.Close()) }

// M2MF copies with M2MF.
func (e *Env) M2MF(a proto.CopyArgs) (proto.CopyResult, error) { return e.copies(a, push.M2MF) }

// CE copies with the chip's copy engines.
func (e *Env) CE(a proto.CopyArgs) (proto.CopyResult, error) { return e.copies(a) }

// copies copies each way with engines, or the copy engines if none is named, and verifies each copy. The
// error names the first that failed.
func (e *Env) copies(a proto.CopyArgs, engines ...push.Engine) (res proto.CopyResult, err error) {
	sizes, times := sizes, 1
	if a.Bytes > maxTimed {
		return res, fmt.Errorf("copies of %d bytes: at most %d MiB", a.Bytes, maxTimed>>20)
	} else if a.Bytes > 0 {
		sizes, times = []uint32{a.Bytes}, timedTimes
	}
	k, err := e.copier()
	if err != nil {
		return res, err
	}
	defer closeInto(k, &err)
	if len(engines) == 0 {
		engines = k.s.chip.copiers
	}
	for _, engine := range engines {
		for _, route := range routes {
			for _, size := range sizes {
				c := copyCase{engine, route, size, times}
				took, failed := k.run(c, a.Seed+uint64(len(res.Cases))*3)
				out := proto.CopyOutcome{Name: c.String(), OK: failed == nil, Bytes: uint64(size) * uint64(times), NS: took.Nanoseconds()}
				if failed == nil {
					res.Bytes += out.Bytes
				} else {
					res.Failed++
					out.Error = failed.Error()
				}
				res.Cases = append(res.Cases, out)
				if failed != nil && err == nil {
					err = fmt.Errorf("%v of %d bytes: %w", &c, size, failed)
				}
				if k.s.ch.Alive() != nil {
					return res, errors.Join(err, errors.New("the channel is dead: the cases after it were not run"))
				}
			}
		}
	}
	return res, err
}

// verified is a small round of copies on a new client: does the GPU still work?
func (e *Env) verified() (err error) {
	k, err := e.copier()
	if err != nil {
		return err
	}
	defer closeInto(k, &err)
	for i, r := range routes {
		c := copyCase{k.s.chip.mover, r, 16 << 10, 1}
		if _, err := k.run(c, uint64(i)+77); err != nil {
			return fmt.Errorf("%v: %w", &c, err)
		}
	}
	return nil
}
