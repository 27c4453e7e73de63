package inside

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var copies = scene.Scenario{
	Name: "copy", About: "each engine copies from the guest's memory to VRAM and back; copy-ratio is the time by that of a plain copy() of the same bytes",
	Cases: func(p scene.Params) (out []scene.Case) {
		for _, n := range pick(p, []uint64{4 << 10, 1 << 20}, []uint64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
			for _, e := range guest.CopyEngines {
				out = append(out, alone(fmt.Sprintf("size=%s/engine=%v", size(n), e), 2*n+1<<20, func(t *scene.Take, g *guest.Guest) error {
					return copyBothWays(t, g, e, n)
				}))
			}
		}
		return out
	},
}

// Small copies are timed over many: about copyBytes in a phase, in at most copyRounds copies.
const (
	copyBytes  = 4 << 20
	copyRounds = 32
)

func copyBothWays(t *scene.Take, g *guest.Guest, e guest.Engine, n uint64) error {
	rounds := int(min(max(copyBytes/n, 1), copyRounds))
	c, err := newCopier(g, n)
	if err != nil {
		return err
	}
	pattern(c.src.Data, n)
	for _, way := range []struct {
		name     string
		dst, src uint64
	}{{"to-vram", vaVRAM, vaSource}, {"from-vram", vaBack, vaVRAM}} {
		err := t.Phase(way.name, func() error {
			for range rounds {
				if err := c.ch.Copy(e, way.dst, way.src, n); err != nil {
					return err
				}
			}
			return errors.Join(c.ch.Finish(), settle(g))
		})
		if err != nil {
			return err
		}
		t.Rate(way.name+"-B/s", float64(n)*float64(rounds))
	}
	if !bytes.Equal(c.src.Data, c.back.Data) {
		return errBytes
	}
	at := time.Now()
	for range 2 * rounds {
		copy(c.back.Data, c.src.Data)
	}
	t.Metric("copy-ratio", float64(t.Took("to-vram")+t.Took("from-vram"))/float64(time.Since(at)))
	return nil
}

// copier is a guest with buffers of n bytes in its memory and in VRAM, and a channel that copies.
type copier struct {
	g         *guest.Guest
	ch        *guest.Channel
	src, back buffer
}

func newCopier(g *guest.Guest, n uint64) (*copier, error) {
	s, err := g.NewSpace()
	if err != nil {
		return nil, err
	}
	c := &copier{g: g}
	var errs [3]error
	c.src, errs[0] = mapped(g, s, vaSource, n, true)
	_, errs[1] = mapped(g, s, vaVRAM, n, false)
	c.back, errs[2] = mapped(g, s, vaBack, n, true)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if c.ch, err = g.NewChannel(1, s); err != nil {
		return nil, err
	}
	return c, errors.Join(c.ch.Finish(), settle(g)) // the first submission binds the engines
}
