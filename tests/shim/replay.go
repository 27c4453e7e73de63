package shim

import (
	"bytes"
	"fmt"
	"strings"
)

// Replay carries out a recording on a fresh machine. It returns an error if the card changes
// memory otherwise than expected.
func Replay(m *Machine, r *Recording) error {
	p := player{machine: m, image: newImage(m)}
	for i := range r.Steps {
		if err := p.step(&r.Steps[i]); err != nil {
			return fmt.Errorf("step %d of %d: %w", i+1, len(r.Steps), err)
		}
	}
	return nil
}

type player struct {
	machine *Machine
	image   *image
}

func (p *player) step(s *Step) error {
	for _, place := range s.Alloc {
		b, err := p.machine.Alloc(place)
		if err != nil {
			return err
		}
		p.image.add(b)
	}
	for _, va := range s.Free {
		b := p.image.buffers[va]
		if b == nil {
			return fmt.Errorf("no buffer at %#x is to be freed", va)
		}
		p.image.remove(b.Buffer)
		if err := p.machine.Free(b.Buffer); err != nil {
			return err
		}
	}
	if s.Submit == nil {
		return nil
	}
	for _, w := range s.Wrote {
		mem := p.machine.At(w.VA, uint64(len(w.Data)))
		if mem == nil {
			return fmt.Errorf("no buffer has %d bytes at %#x", len(w.Data), w.VA)
		}
		copy(mem, w.Data)
	}
	if _, err := p.image.changes(); err != nil {
		return err
	}
	for len(p.machine.channels) <= s.Channel {
		if _, err := p.machine.NewChannel(); err != nil {
			return err
		}
	}
	switch err := p.machine.channels[s.Channel].Run(s.Submit); {
	case err != nil && alike(err.Error(), s.Failed):
		return nil
	case err != nil:
		return err
	case s.Failed != "":
		return fmt.Errorf("the card completed a submission that failed when it was recorded: %s", s.Failed)
	}
	got, err := p.image.changes()
	if err != nil {
		return err
	}
	return same(got, s.Expected)
}

// alike compares errors, but for the block: blocks run side by side, and any may be the first to fail.
func alike(a, b string) bool {
	a, _, _ = strings.Cut(a, ", block ")
	b, _, _ = strings.Cut(b, ", block ")
	return a == b
}

// same compares what a card changed, by words.
func same(got, want []Bytes) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i == len(want):
			return fmt.Errorf("the card also wrote %d bytes at %#x", len(got[i].Data), got[i].VA)
		case i == len(got):
			return fmt.Errorf("the card did not write %d bytes at %#x", len(want[i].Data), want[i].VA)
		case got[i].VA != want[i].VA || len(got[i].Data) != len(want[i].Data):
			return fmt.Errorf("the card wrote %d bytes at %#x, want %d bytes at %#x",
				len(got[i].Data), got[i].VA, len(want[i].Data), want[i].VA)
		case !bytes.Equal(got[i].Data, want[i].Data):
			at := 0
			for got[i].Data[at] == want[i].Data[at] {
				at++
			}
			return fmt.Errorf("the card wrote %#x at %#x, want %#x", got[i].Data[at], got[i].VA+uint64(at), want[i].Data[at])
		}
	}
	return nil
}
