package stats

import (
	"math"
	"slices"
)

// chance is how often two sets of measurements of the same thing may be called apart.
const chance = 0.05

// exactBelow is up to how many pairs of values chances are counted out; of more the
// normal distribution is as good.
const exactBelow = 2500

// Apart tells whether the values of a lie below those of b (-1), above them (1), or neither (0).
// They lie apart if values of one and the same thing would do so, or more, in one of twenty cases
// at most. It counts how many of the pairs of values are one way round (Mann and Whitney's U), for
// this asks nothing of how the values are distributed. enough is false if there are so few that
// they could not lie apart at all.
func Apart(a, b []float64) (side int, enough bool) {
	n, m := len(a), len(b)
	if n == 0 || m == 0 || likely(0, n, m) > chance {
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
	case likely(min(below, above), n, m) > chance:
		return 0, true
	case below > above:
		return -1, true
	default:
		return 1, true
	}
}

// likely is how often, of n and m values of the same thing, no more than u of the pairs are one
// way round, or no more than u the other.
func likely(u float64, n, m int) float64 {
	pairs := n * m
	if pairs > exactBelow {
		mean, deviation := float64(pairs)/2, math.Sqrt(float64(pairs)*float64(n+m+1)/12)
		return math.Erfc((mean - u - 0.5) / deviation / math.Sqrt2)
	}
	// ways[k] is in how many orders of the values k pairs are one way round: the coefficients of
	// the product of (1-x^(m+i))/(1-x^i), with i from 1 to n.
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
	all, few := 0.0, 0.0
	for k, w := range ways {
		all += w
		if float64(k) <= math.Ceil(u) { // half a pair counts for a whole one: apart is what is so for sure
			few += w
		}
	}
	return min(1, 2*few/all)
}
