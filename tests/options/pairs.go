package options

import (
	"cmp"
	"slices"
)

// value is one value of one option.
type value struct{ axis, word int }

// pairs are the pairs of values of two options that combinations have between them.
func pairs(list []Combination) map[[2]value]bool {
	out := make(map[[2]value]bool)
	for _, c := range list {
		for i := range c {
			for k := range i {
				out[[2]value{{k, c[k]}, {i, c[i]}}] = true
			}
		}
	}
	return out
}

// Pairs are combinations in which every two values of two options that are possible
// together are together at least once. Each is the one that has the most pairs that
// none before it has; of equals, the one with values that came least.
func Pairs() (list []Combination) {
	all := All()
	left := pairs(all)
	used := make(map[value]int)
	for len(left) > 0 {
		best := slices.MaxFunc(all, func(a, b Combination) int {
			return cmp.Or(cmp.Compare(fresh(a, left), fresh(b, left)), cmp.Compare(worn(b, used), worn(a, used)))
		})
		for p := range pairs([]Combination{best}) {
			delete(left, p)
		}
		for i, w := range best {
			used[value{i, w}]++
		}
		list = append(list, best)
	}
	return list
}

// fresh is how many pairs of a combination are left.
func fresh(c Combination, left map[[2]value]bool) (n int) {
	for i := range c {
		for k := range i {
			if left[[2]value{{k, c[k]}, {i, c[i]}}] {
				n++
			}
		}
	}
	return n
}

func worn(c Combination, used map[value]int) (n int) {
	for i, w := range c {
		n += used[value{i, w}]
	}
	return n
}
