package gpu

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// Evict makes more buffers than VRAM holds, fills each by the GPU, and then goes through
// them in order again and again, so that the kernel must evict and bring back every one
// of them each time.
func (e *Env) Evict(a proto.EvictArgs) (res proto.EvictResult, err error) {
	k, err := e.copier()
	if err != nil {
		return res, err
	}
	defer closeInto(k, &err)
	if res.VRAMBytes, err = k.s.dev.Param(drm.ParamFBSize); err != nil {
		return res, err
	}
	size := orUint64(a.BufferBytes, 4<<20)
	total := a.TotalBytes
	if total == 0 {
		times := a.Times
		if times == 0 {
			times = 1.25
		}
		total = uint64(times * float64(res.VRAMBytes))
	}
	var buffers []Buffer
	defer func() {
		for _, b := range buffers {
			err = errors.Join(err, b.Close())
		}
	}()
	want := make([]byte, size)
	for res.Bytes < total {
		b, err := k.s.dev.NewBuffer(size, drm.DomainVRAM)
		if err != nil {
			return res, fmt.Errorf("buffer %d: %w", len(buffers), err)
		}
		buffers = append(buffers, b)
		fill(want, a.Seed+uint64(len(buffers)-1))
		if err := k.upload(push.M2MF, b, drm.DomainVRAM, want); err != nil {
			return res, fmt.Errorf("filling buffer %d: %w", len(buffers)-1, err)
		}
		res.Bytes += size
	}
	res.Buffers = len(buffers)
	for range orInt(a.Passes, 2) {
		for i, b := range buffers {
			fill(want, a.Seed+uint64(i))
			got, err := k.download(push.M2MF, b, drm.DomainVRAM, want)
			if err != nil {
				return res, fmt.Errorf("reading buffer %d: %w", i, err)
			}
			if bytes.Equal(got, want) {
				res.Verified += size
			} else {
				res.Wrong++
			}
		}
	}
	if res.Wrong > 0 {
		err = fmt.Errorf("%d buffers came back wrong", res.Wrong)
	}
	return res, err
}

func orUint64(v, or uint64) uint64 {
	if v == 0 {
		return or
	}
	return v
}

// BOMoves makes the kernel move one buffer between VRAM and GART, by validation lists that
// allow only the other, and verifies its contents after each move: in GART by the CPU,
// which then writes new ones; in VRAM by a copy and by some words through the BAR.
func (e *Env) BOMoves(a proto.BOMovesArgs) (res proto.BOMovesResult, err error) {
	size := orUint64(a.Bytes, 1<<20)
	k, err := e.copier()
	if err != nil {
		return res, err
	}
	defer closeInto(k, &err)
	b, err := k.s.dev.NewBuffer(size, drm.DomainVRAM|drm.DomainGART)
	if err != nil {
		return res, err
	}
	defer closeInto(b, &err)
	want := make([]byte, size)
	fill(want, a.Seed)
	if err := k.upload(push.M2MF, b, drm.DomainVRAM, want); err != nil {
		return res, err
	}
	for i := range orInt(a.Moves, 8) {
		to := drm.DomainGART
		if i%2 == 1 {
			to = drm.DomainVRAM
		}
		if err := k.place(b, to); err != nil {
			return res, fmt.Errorf("move %d: %w", i, err)
		}
		at, err := b.Domain()
		if err != nil {
			return res, err
		}
		res.Domains = append(res.Domains, at.String())
		if at&to == 0 {
			return res, fmt.Errorf("move %d: the buffer is in %v, want %v", i, at, to)
		}
		got, err := k.download(push.M2MF, b, to, want)
		if err != nil {
			return res, err
		}
		if err := k.peek(b, &job{dst: rect{domain: to}, want: want}); err != nil {
			return res, fmt.Errorf("move %d: %w", i, err)
		}
		if !bytes.Equal(got, want) {
			res.Wrong++
			continue
		}
		res.Bytes += size
		if to == drm.DomainGART {
			fill(want, a.Seed+uint64(i)+1)
			if err := k.upload(push.M2MF, b, to, want); err != nil {
				return res, err
			}
		}
	}
	if res.Wrong > 0 {
		err = fmt.Errorf("wrong contents after %d of %d moves", res.Wrong, len(res.Domains))
	}
	return res, err
}

// place submits a no-op that needs the buffer in a domain.
func (k *copier) place(b Buffer, to drm.Domain) error {
	var words push.Buffer
	words.Inc(subchanM2MF, push.HostNop, 0)
	if err := k.s.Submit(&words, ref(b, to, false)); err != nil {
		return err
	}
	return k.s.Flush()
}
