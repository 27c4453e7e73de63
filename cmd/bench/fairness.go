package bench

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

var fairness = scenario{
	name: "fairness", about: "two guests want all of the copy engine, the second with requests eight times as long; fairness is the least share by what is due",
	cases: func(quick bool) (out []testCase) {
		for _, c := range pick(quick, fairCases[:1], fairCases) {
			out = append(out, testCase{
				name:  fmt.Sprintf("policy=%s/weights=%d:1", c.policy, c.weight),
				shape: shape{card: 512 << 20, gpus: 2, vram: 128 << 20, policy: c.policy, weight: c.weight}, virtual: true,
				run: func(t *take) { share(t, c.weight, pick(quick, 300*time.Millisecond, time.Second)) },
			})
		}
		return out
	},
}

// fairCases are policies, with the weight of the first guest.
var fairCases = []struct {
	policy string
	weight int
}{{"credit", 3}, {"credit", 1}, {"fifo", 1}, {"band", 1}, {"timeslice", 1}, {"dfq", 1}}

// share has two guests work for some time, each in a goroutine that ends with it.
func share(t *take, weight int, long time.Duration) {
	var pairs [][2]*guest.Channel
	for i := range 2 {
		g := t.attach(i, 0)
		s := get(g.NewSpace())
		mapped(g, s, vaWork, busyBuffer, false)
		mapped(g, s, vaWork2, busyBuffer, false)
		var pair [2]*guest.Channel
		for j := range pair {
			pair[j] = get(g.NewChannelWith(1+j, s, guest.ChannelConfig{Push: 256 << 10}))
			must(pair[j].Finish())
		}
		settle(g)
		pairs = append(pairs, pair)
	}
	before := t.engineTimes()
	errs := make([]error, len(pairs))
	t.phase("", func() {
		var wait sync.WaitGroup
		end := time.Now().Add(long)
		for i, pair := range pairs {
			wait.Go(func() {
				const short = 4 // copies in a request of the first guest
				errs[i] = caught(func() { keepBusy(pair, short<<(3*i), end) })
			})
		}
		wait.Wait()
	})
	must(errs...)
	after := t.engineTimes()
	worked, due := []float64{after[0] - before[0], after[1] - before[1]}, []float64{float64(weight), 1}
	least := math.Inf(1)
	for i := range worked {
		part, of := worked[i]/(worked[0]+worked[1]), due[i]/(due[0]+due[1])
		least = min(least, part/of)
	}
	if math.IsNaN(least) {
		must(fmt.Errorf("the engines worked for nobody"))
	}
	t.metric("fairness", least)
}

// keepBusy submits requests of so many copies until a time. While one channel's are awaited, the other's wait.
func keepBusy(pair [2]*guest.Channel, copies int, end time.Time) {
	const ahead = 8
	var p guest.Push
	for range copies {
		p.Copy(guest.CE0, vaWork2, vaWork, busyBuffer)
	}
	for i := 0; time.Now().Before(end); i++ {
		for range ahead {
			must(pair[i%2].Submit(p.Words...))
		}
		if i > 0 {
			must(pair[(i+1)%2].Finish())
		}
	}
	must(pair[0].Finish(), pair[1].Finish())
}

// engineTimes are the nanoseconds for which engines worked for each GPU.
func (t *take) engineTimes() (out []float64) {
	r := get(t.running.Report())
	for i := range r.GPUs {
		if n := r.GPUs[i].CardTime; n != nil {
			a := api.Total(n.Engines)
			out = append(out, float64(a.Busy))
		} else {
			out = append(out, 0)
		}
	}
	return out
}
