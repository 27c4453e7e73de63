package stats

import (
	"math"
	"slices"
	"sort"
)

// chance is how often two sets of measurements of the same thing may be called apart.
const chance = 0.05

// exactUpTo is up to how many values in the smaller of two sets chances are counted out. Of more
// in both the normal distribution is as good; of few beside many it is not, however many.
const exactUpTo = 50

// Apart tells whether the values of a lie below those of b (-1), above them (1), or neither (0).
// They lie apart if values of one and the same thing would do so, or more, in one of twenty cases
// at most. It counts how many of the pairs of values are one way round (Mann and Whitney's U), for
// this asks nothing of how the values are distributed. enough is false if there are so few that
// they could not lie apart at all.
func Apart(a, b []float64) (side int, enough bool) {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return 0, false
	}
	chances := chancesOf(n, m)
	if chances.likely(0) > chance {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(b))
	below := 0.0 // pairs in which a's value is the smaller; equal ones are half a pair
	for _, v := range a {
		from, _ := slices.BinarySearch(sorted, v)
		to := from
		for to < m && sorted[to] == v {
			to++
		}
		below += float64(m-to) + float64(to-from)/2
	}
	above := float64(n*m) - below
	switch {
	case chances.likely(min(below, above)) > chance:
		return 0, true
	case below > above:
		return -1, true
	default:
		return 1, true
	}
}

// Mistaken is how often n and m values of one and the same thing are called apart: one in twenty
// at most, and of few values less, for there are only so many ways in which they can lie.
func Mistaken(n, m int) float64 {
	if n == 0 || m == 0 {
		return 0
	}
	chances := chancesOf(n, m)
	called := sort.Search(n*m/2+1, func(u int) bool { return chances.likely(float64(u)) > chance })
	if called == 0 {
		return 0
	}
	return chances.likely(float64(called - 1))
}

// chances are those of two sets of values of the same thing.
type chances struct {
	n, m int
	// upTo[u] is how often no more than u of the pairs are one way round; nil if the normal
	// distribution says it.
	upTo []float64
}

func chancesOf(n, m int) *chances {
	n, m = min(n, m), max(n, m) // which is which makes no difference
	c := &chances{n: n, m: m}
	if n > exactUpTo {
		return c
	}
	// ways[k] is in how many orders of the values k pairs are one way round: the coefficients of
	// the product of (1-x^(m+i))/(1-x^i), with i from 1 to n.
	pairs := n * m
	ways := make([]float64, pairs+1)
	ways[0] = 1
	for i := 1; i <= n; i++ {
		for k := pairs; k >= m+i; k-- {
			ways[k] -= ways[k-m-i]
		}
		for k := i; k <= pairs; k++ {
			ways[k] += ways[k-i]
		}
	}
	for k := 1; k <= pairs; k++ {
		ways[k] += ways[k-1]
	}
	all := ways[pairs]
	for k := range ways {
		ways[k] /= all
	}
	c.upTo = ways
	return c
}

// likely is how often no more than u of the pairs are one way round, or no more than u the other.
func (c *chances) likely(u float64) float64 {
	u = math.Ceil(u) // half a pair counts for a whole one: apart is what is so for sure
	if c.upTo != nil {
		return min(1, 2*c.upTo[int(u)])
	}
	pairs := float64(c.n) * float64(c.m)
	deviation := math.Sqrt(pairs * float64(c.n+c.m+1) / 12)
	return min(1, math.Erfc((pairs/2-u-0.5)/deviation/math.Sqrt2))
}
