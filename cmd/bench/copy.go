package bench

import (
	"bytes"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var copies = scenario{
	name: "copy", about: "each engine copies from the guest's memory to VRAM and back; copy-ratio is the time by that of a plain copy() of the same bytes",
	inMachine: (*life).copies,
	cases: func(quick bool) (out []testCase) {
		for _, n := range pick(quick, []uint64{4 << 10, 1 << 20}, []uint64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
			for _, e := range guest.CopyEngines {
				out = append(out, alone(fmt.Sprintf("size=%v/engine=%v", config.Size(n), e), 2*n+1<<20, func(t *take, g *guest.Guest) {
					copyBothWays(t, newCopier(g, n), e)
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

func copyBothWays(t *take, c *copier, e guest.Engine) {
	n := uint64(len(c.src.Data))
	rounds := min(max(copyBytes/n, 1), copyRounds)
	var all time.Duration
	way := func(name string, dst, src uint64) {
		took := t.phase(name, func() {
			for range rounds {
				must(c.ch.Copy(e, dst, src, n))
			}
			must(c.ch.Finish())
			settle(c.g)
		})
		t.metric(name+"-B/s", float64(n*rounds)/took.Seconds())
		all += took
	}
	way("to-vram", vaVRAM, vaSource)
	way("from-vram", vaBack, vaVRAM)
	c.verify(n)
	at := time.Now()
	for range 2 * rounds {
		copy(c.back.Data, c.src.Data)
	}
	t.metric("copy-ratio", float64(all)/float64(time.Since(at)))
}

// copier is a guest with buffers of n bytes in its memory and in VRAM, and a channel that copies.
type copier struct {
	g         *guest.Guest
	ch        *guest.Channel
	src, back buffer
}

func newCopier(g *guest.Guest, n uint64) *copier {
	s := get(g.NewSpace())
	c := &copier{g: g, src: mapped(g, s, vaSource, n, true)}
	mapped(g, s, vaVRAM, n, false)
	c.back = mapped(g, s, vaBack, n, true)
	pattern(c.src.Data, n)
	c.ch = get(g.NewChannel(1, s))
	must(c.ch.Finish()) // the first submission binds the engines
	settle(g)
	return c
}

// verify compares the first n bytes.
func (c *copier) verify(n uint64) {
	if !bytes.Equal(c.src.Data[:n], c.back.Data[:n]) {
		must(errBytes)
	}
}
