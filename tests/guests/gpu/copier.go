package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// copier moves bytes between the CPU and buffers anywhere, by the engine under test.
type copier struct {
	s       *Stream
	staging Buffer
}

// copier opens the card for a copier.
func (e *Env) copier() (*copier, error) {
	s, err := e.stream()
	return &copier{s: s}, err
}

// Close frees the buffer before the stream, whose device may end with it.
func (k *copier) Close() (err error) {
	if k.staging != nil {
		err = k.staging.Close()
	}
	return errors.Join(err, k.s.Close())
}

// stage returns a GART buffer of at least n bytes, and its mapping.
func (k *copier) stage(n int) (Buffer, []byte, error) {
	if k.staging == nil || k.staging.Size() < uint64(n) {
		if k.staging != nil {
			if err := k.staging.Close(); err != nil {
				return nil, nil, err
			}
			k.staging = nil
		}
		b, err := k.s.dev.NewBuffer(uint64(n), drm.DomainGART)
		if err != nil {
			return nil, nil, err
		}
		k.staging = b
	}
	m, err := k.staging.Bytes()
	if err != nil {
		return nil, nil, err
	}
	return k.staging, m[:n], nil
}

// upload makes a buffer hold data: by the CPU in GART, by the engine in VRAM.
func (k *copier) upload(e push.Engine, b Buffer, domain drm.Domain, data []byte) error {
	if domain == drm.DomainGART {
		m, err := b.Bytes()
		if err != nil {
			return err
		}
		copy(m, data)
		return nil
	}
	st, m, err := k.stage(len(data))
	if err != nil {
		return err
	}
	copy(m, data)
	return k.move(e, st, drm.DomainGART, b, domain, uint64(len(data)))
}

// download reads a buffer of which want is expected. From VRAM it goes through a
// staging buffer that holds the complement of want, so that a copy that does
// nothing cannot pass.
func (k *copier) download(e push.Engine, b Buffer, domain drm.Domain, want []byte) ([]byte, error) {
	if domain == drm.DomainGART {
		m, err := b.Bytes()
		if err != nil {
			return nil, err
		}
		return append([]byte(nil), m[:len(want)]...), nil
	}
	st, m, err := k.stage(len(want))
	if err != nil {
		return nil, err
	}
	complement(m, want)
	if err := k.move(e, b, domain, st, drm.DomainGART, uint64(len(want))); err != nil {
		return nil, err
	}
	return append([]byte(nil), m...), nil
}

// move copies n bytes from the start of src to the start of dst and waits.
func (k *copier) move(e push.Engine, src Buffer, from drm.Domain, dst Buffer, to drm.Domain, n uint64) error {
	if err := k.s.use(e.Object()); err != nil {
		return err
	}
	var b push.Buffer
	b.Copy(e, dst.VA(), src.VA(), n)
	if err := k.s.Submit(&b, ref(src, from, false), ref(dst, to, true)); err != nil {
		return err
	}
	if err := wait(dst, false); err != nil {
		return err
	}
	return k.s.ch.Alive()
}

// peek reads some words of a buffer in VRAM through the BAR, so that the CPU and the engines are
// known to mean the same memory.
func (k *copier) peek(b Buffer, want []byte) error {
	m, err := b.Bytes()
	if err != nil {
		return err
	}
	const peeks = 16
	step := max(len(want)/peeks&^3, 4)
	for at := 0; at+4 <= len(want); at += step {
		got, want := binary.LittleEndian.Uint32(m[at:]), binary.LittleEndian.Uint32(want[at:])
		if got != want {
			return fmt.Errorf("through the BAR, byte %#x reads %#08x, want %#08x", at, got, want)
		}
	}
	return nil
}

// Subchannels, as in Mesa's nvc0.
const (
	subchanM2MF  push.Subchan = 2
	subchanEmpty push.Subchan = 6 // nothing is ever bound here
)
