package options

import (
	"cmp"
	"slices"
	"sync"
)

// value is one value of one option.
type value struct{ axis, word int }

type pair [2]value

// pairs returns the pairs of values that occur together in combinations.
func pairs(list []Combination) map[pair]bool {
	out := make(map[pair]bool)
	for _, c := range list {
		for i := range c {
			for k := range i {
				out[pair{{k, c[k]}, {i, c[i]}}] = true
			}
		}
	}
	return out
}

// Pairs returns combinations that together have every pair of values that All has. Each
// adds the most missing pairs; among equals, it is the one whose values were used least.
var Pairs = sync.OnceValue(func() (list []Combination) {
	missing := pairs(All())
	used := make(map[value]int)
	score := func(c Combination) (adds, uses int) {
		for i := range c {
			uses += used[value{i, c[i]}]
			for k := range i {
				if missing[pair{{k, c[k]}, {i, c[i]}}] {
					adds++
				}
			}
		}
		return adds, uses
	}
	for len(missing) > 0 {
		best := slices.MaxFunc(All(), func(a, b Combination) int {
			aAdds, aUses := score(a)
			bAdds, bUses := score(b)
			return cmp.Or(cmp.Compare(aAdds, bAdds), cmp.Compare(bUses, aUses))
		})
		for p := range pairs([]Combination{best}) {
			delete(missing, p)
		}
		for i, w := range best {
			used[value{i, w}]++
		}
		list = append(list, best)
	}
	return list
})
