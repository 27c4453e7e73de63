package bench

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var copies = scenario{
	name: "copy", about: "each engine copies from the guest's memory to VRAM and back; copy-ratio is the time by that of a plain copy() of the same bytes",
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

var crowd = scenario{
	name: "crowd", about: "many guests copy at once; B/s is of all together, traps/guest should not depend on how many they are; fairness is the time of the first to finish by that of the last",
	cases: func(quick bool) (out []testCase) {
		rounds := pick(quick, 20, 100)
		for _, n := range pick(quick, []int{1, 4}, []int{1, 2, 4, 8, 16, 32}) {
			out = append(out, testCase{
				name: fmt.Sprint("guests=", n), shape: shape{card: 3 << 30, gpus: n, vram: 64 << 20}, virtual: true,
				prepare: attachAll,
				run:     func(t *take) { together(t, t.state.([]*copier), rounds) },
			})
		}
		return out
	},
}

const (
	crowdBytes = 256 << 10
	// crowdTouched is what all guests' copies touch together, by turns, however many guests they are:
	// a few guests' bytes would fit the processor's cache, and those of many would not.
	crowdTouched = 32 * crowdBytes
)

// attachAll attaches one guest to each GPU.
func attachAll(s *server) any {
	var all []*copier
	each := uint64(crowdTouched / s.gpus)
	for i := range s.gpus {
		all = append(all, newCopier(s.attach(i, 2*each+1<<20), each))
		pattern(all[i].src.Data, uint64(i)) // other bytes than a neighbour's
	}
	return all
}

// copies copies to VRAM and back, and verifies the bytes. Each round costs the same traps.
func (c *copier) copies(rounds int) {
	size := uint64(len(c.src.Data))
	for i := range uint64(rounds) {
		at := i * crowdBytes % size
		must(c.ch.Copy(guest.M2MF, vaVRAM+at, vaSource+at, crowdBytes), c.ch.Copy(guest.M2MF, vaBack+at, vaVRAM+at, crowdBytes), c.ch.FinishByEvent())
	}
	settle(c.g)
	c.verify(min(uint64(rounds)*crowdBytes, size))
}

// together has all guests copy at once, each in a goroutine that ends with it.
func together(t *take, all []*copier, rounds int) {
	each, errs := make([]float64, len(all)), make([]error, len(all))
	took := t.phase("", func() {
		var wait sync.WaitGroup
		at := time.Now()
		for i, c := range all {
			wait.Go(func() {
				errs[i] = caught(func() { c.copies(rounds) })
				each[i] = float64(time.Since(at))
			})
		}
		wait.Wait()
		must(errs...)
	})
	t.metric("B/s", 2*crowdBytes*float64(rounds)*float64(len(all))/took.Seconds())
	t.metric("traps/guest", t.counts[unitTraps]/float64(len(all)))
	t.metric("fairness", slices.Min(each)/slices.Max(each))
}
