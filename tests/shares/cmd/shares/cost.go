package main

import (
	"fmt"
	"math"
	"time"

	"github.com/umbra-gpu/umbra/tests/shares"
)

// way is a way of sharing that is measured: no scheduler at all, or a policy.
type way struct {
	name   string
	table  *table
	policy string
}

// cost measures how long the same work of two guests takes with and without a
// scheduler. The ways take turns, so that what changes on the machine is the same for
// all; the last is without one again, which is the noise.
func cost(o *options) error {
	plain, err := newTable(nil, 2)
	if err != nil {
		return err
	}
	defer plain.hall.Close()
	shared, err := newTable(&o.set, 2)
	if err != nil {
		return err
	}
	defer shared.hall.Close()
	plain.each = shared.each // the same work
	ways := []way{{name: "off", table: plain}}
	for _, p := range o.policies {
		ways = append(ways, way{p, shared, p})
	}
	ways = append(ways, way{name: "off again", table: plain})
	fmt.Printf("the same work of two guests, %d turns of each: us of a request, with how many of them the card stood still,\n", o.rounds)
	fmt.Printf("and how much longer it took than without a scheduler, %%, the median of neighbouring turns\n")
	fmt.Printf("%7s %5s", "length", "ahead")
	for i, w := range ways {
		if fmt.Printf(" %18s", w.name); i > 0 {
			fmt.Printf(" %7s", "")
		}
	}
	fmt.Println()
	all := make([][]float64, len(ways)) // of everything, in %
	mean := make([]float64, len(ways))
	idle := make([]float64, len(ways))
	n := 0.0
	for _, length := range o.lengths {
		for _, ahead := range o.depths {
			turns := make([][]turn, len(ways))
			for r := range o.rounds {
				for i := range ways {
					if r%2 == 1 {
						i = len(ways) - 1 - i
					}
					d, err := ways[i].work(o, length, ahead)
					if err != nil {
						return err
					}
					turns[i] = append(turns[i], d)
				}
			}
			fmt.Printf("%7v %5d", length, ahead)
			var base float64
			for i := range ways {
				var took, still, more []float64
				for r, d := range turns[i] {
					took, still = append(took, d.took), append(still, d.idle)
					without := (turns[0][r].took + turns[len(ways)-1][r].took) / 2
					more = append(more, 100*(d.took/without-1))
				}
				fmt.Printf(" %10.0f %7.1f", 1e6*shares.Median(took), 1e6*shares.Median(still))
				if i == 0 {
					base = shares.Median(still)
				} else {
					fmt.Printf(" %+7.2f", shares.Median(more))
				}
				all[i] = append(all[i], more...)
				mean[i] += shares.Median(more)
				idle[i] += 100 * (shares.Median(still) - base) / shares.Median(took)
			}
			fmt.Println()
			n++
		}
	}
	fmt.Println("mean of the rows and its error, %; of that, the card stood still")
	for i, w := range ways {
		fmt.Printf("%18s %+7.2f +- %.2f %+7.2f\n", w.name, mean[i]/n, deviation(all[i])/math.Sqrt(float64(len(all[i]))), idle[i]/n)
	}
	return nil
}

// deviation is the standard deviation.
func deviation(v []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum, squares = sum+x, squares+x*x
	}
	n := float64(len(v))
	return math.Sqrt(max(squares/n-sum*sum/n/n, 0))
}

// turn is what was measured of one turn, in seconds of a request.
type turn struct {
	took, idle float64 // the card stood still for idle
}

func (w *way) work(o *options, length time.Duration, ahead int) (turn, error) {
	if w.policy != "" {
		cfg, err := o.schedule(w.policy)
		if err != nil {
			return turn{}, err
		}
		if err := w.table.hall.Agg.SetSchedule(cfg); err != nil {
			return turn{}, err
		}
	}
	t := w.table
	n := max(int(o.length/2/length), 3)
	before := t.hall.Busy()
	took, err := shares.Work(t.throttles, []shares.Load{t.load(0, length, ahead), t.load(1, length, ahead)}, n)
	idle := took - (t.hall.Busy() - before)
	return turn{took.Seconds() / float64(2*n), idle.Seconds() / float64(2*n)}, err
}
