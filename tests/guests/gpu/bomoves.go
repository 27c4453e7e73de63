package gpu

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// BOMoves makes the kernel move one buffer between VRAM and GART, by validation lists that
// allow only the other, and verifies its contents after each move: in GART by the CPU,
// which then writes new ones; in VRAM by a copy and by some words through the BAR.
func (e *Env) BOMoves(a proto.BOMovesArgs) (res proto.BOMovesResult, err error) {
	size := cmp.Or(a.Bytes, 1<<20)
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
	if err := k.upload(k.s.chip.mover, b, drm.DomainVRAM, want); err != nil {
		return res, err
	}
	for i := range cmp.Or(a.Moves, 8) {
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
		got, err := k.download(k.s.chip.mover, b, to, want)
		if err != nil {
			return res, err
		}
		if to == drm.DomainVRAM {
			if err := k.peek(b, want); err != nil {
				return res, fmt.Errorf("move %d: %w", i, err)
			}
		}
		if !bytes.Equal(got, want) {
			res.Wrong++
			continue
		}
		res.Bytes += size
		if to == drm.DomainGART {
			fill(want, a.Seed+uint64(i)+1)
			if err := k.upload(k.s.chip.mover, b, to, want); err != nil {
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
