package bench

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

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
