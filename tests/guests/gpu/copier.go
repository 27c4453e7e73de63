package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// copier moves bytes between the CPU and buffers anywhere, by the engine under test.
type copier struct {
	s       *Stream
	staging Buffer
	sem     Buffer
}

// semOffset is where in its page a copy's semaphore lies; the words around it are
// guarded.
const (
	semOffset = 0x40
	semWords  = 64
)

func newCopier(dev Device) (*copier, error) {
	s, err := NewStream(dev)
	if err != nil {
		return nil, err
	}
	k := &copier{s: s}
	if k.sem, err = dev.NewBuffer(4096, drm.DomainGART); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return k, nil
}

// ownCopier is a copier on a device of its own.
type ownCopier struct{ *copier }

// copier opens the card for a copier.
func (e *Env) copier() (ownCopier, error) {
	dev, err := e.Open()
	if err != nil {
		return ownCopier{}, err
	}
	k, err := newCopier(dev)
	if err != nil {
		return ownCopier{}, errors.Join(err, dev.Close())
	}
	return ownCopier{k}, nil
}

// Close ends both.
func (k ownCopier) Close() error { return errors.Join(k.copier.Close(), k.s.dev.Close()) }

func (k *copier) Close() error {
	err := k.s.Close()
	err = errors.Join(err, k.sem.Close())
	if k.staging != nil {
		err = errors.Join(err, k.staging.Close())
	}
	return err
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

// peek reads some words of a destination in VRAM through the BAR, so that the CPU
// and the engines are known to mean the same memory.
func (k *copier) peek(b Buffer, j *job) error {
	if j.dst.domain != drm.DomainVRAM {
		return nil
	}
	m, err := b.Bytes()
	if err != nil {
		return err
	}
	const peeks = 16
	step := max(len(j.want)/peeks&^3, 4)
	for at := 0; at+4 <= len(j.want); at += step {
		got, want := binary.LittleEndian.Uint32(m[at:]), binary.LittleEndian.Uint32(j.want[at:])
		if got != want {
			return fmt.Errorf("through the BAR, byte %#x reads %#08x, want %#08x", at, got, want)
		}
	}
	return nil
}

// semFill is what the words around a semaphore hold.
func semFill(i int) uint32 { return 0xdead0000 | uint32(i) }

func (k *copier) armSemaphore() error {
	m, err := k.sem.Bytes()
	if err != nil {
		return err
	}
	for i := range semWords {
		binary.LittleEndian.PutUint32(m[4*i:], semFill(i))
	}
	return nil
}

// checkSemaphore verifies what the copy released, and that no other word changed.
func (k *copier) checkSemaphore(j *job) error {
	m, err := k.sem.Bytes()
	if err != nil {
		return err
	}
	return checkSemaphoreWords(m, j.c.Semaphore, j.payload)
}

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

// Subchannels. Those of the objects 0 to 3 and 7 are as in Mesa's nvc0.
const (
	subchanM2MF  push.Subchan = 2
	subchanEmpty push.Subchan = 6 // nothing is ever bound here
)

var (
	object3D      = push.Object{Class: push.Class3D, Unit: push.UnitGR, Subchan: 0}
	objectCompute = push.Object{Class: push.ClassCompute, Unit: push.UnitGR, Subchan: 1}
)

// engineOf finds an engine by name.
func engineOf(name string) (push.Engine, error) {
	for _, e := range push.CopyEngines {
		if strings.EqualFold(e.String(), name) {
			return e, nil
		}
	}
	return 0, fmt.Errorf("engine %q: want m2mf, ce0 or ce1", name)
}
