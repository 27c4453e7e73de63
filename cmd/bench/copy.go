package bench

import (
	"bytes"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var copies = scenario{
	name: "copy", about: "each engine copies from the guest's memory to VRAM and back; copy-ratio is the time by that of a plain copy() of the same bytes",
	inMachine: (*life).copies,
	cases: func(quick bool) (out []testCase) {
		for _, n := range pick(quick, []uint64{4 << 10, 1 << 20}, []uint64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
			for _, e := range guest.CopyEngines {
				out = append(out, alone(fmt.Sprintf("size=%s/engine=%v", bytesName(n), e), 2*n+1<<20, func(t *take, g *guest.Guest) {
					copyBothWays(t, g, e, n)
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

func copyBothWays(t *take, g *guest.Guest, e guest.Engine, n uint64) {
	rounds := min(max(copyBytes/n, 1), copyRounds)
	c := newCopier(g, n)
	pattern(c.src.Data, n)
	var all time.Duration
	for _, way := range []struct {
		name     string
		dst, src uint64
	}{{"to-vram", vaVRAM, vaSource}, {"from-vram", vaBack, vaVRAM}} {
		took := t.phase(way.name, func() {
			for range rounds {
				must(c.ch.Copy(e, way.dst, way.src, n))
			}
			must(c.ch.Finish())
			settle(g)
		})
		t.metric(way.name+"-B/s", float64(n*rounds)/took.Seconds())
		all += took
	}
	if !bytes.Equal(c.src.Data, c.back.Data) {
		must(errBytes)
	}
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
	c.ch = get(g.NewChannel(1, s))
	must(c.ch.Finish()) // the first submission binds the engines
	settle(g)
	return c
}
