package shadowpt

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestEntrySet compares the set with a plain one that is searched linearly, for any
// additions, removals and unions.
func TestEntrySet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sets [2]entrySet
		var plain [2]map[int]bool
		for i := range plain {
			plain[i] = make(map[int]bool)
		}
		entry := rapid.OneOf(rapid.IntRange(0, DirEntries-1), rapid.SampledFrom([]int{0, 63, 64, 4095, 4096, DirEntries - 1}))
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k, i := rapid.IntRange(0, 1).Draw(t, "set"), entry.Draw(t, "entry")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				sets[k].add(i)
				plain[k][i] = true
			case 2:
				sets[k].remove(i)
				delete(plain[k], i)
			case 3:
				sets[k].addAll(&sets[1-k])
				for o := range plain[1-k] {
					plain[k][o] = true
				}
			}
		}
		from := rapid.IntRange(0, setWords).Draw(t, "from")
		for w, m := sets[0].take(from); w < setWords; w, m = sets[0].take(w + 1) {
			require.GreaterOrEqual(t, w, from)
			from = w + 1
			for ; m != 0; m &= m - 1 {
				i := w*64 + bits.TrailingZeros64(m)
				require.True(t, plain[0][i], "entry %d", i)
				delete(plain[0], i)
			}
			for i := range plain[0] {
				require.True(t, i/64 > w || i/64 < from, "entry %d was passed over", i)
			}
		}
		for w, m := sets[0].take(0); w < setWords; w, m = sets[0].take(w + 1) {
			for ; m != 0; m &= m - 1 {
				i := w*64 + bits.TrailingZeros64(m)
				require.True(t, plain[0][i], "entry %d", i)
				delete(plain[0], i)
			}
		}
		require.Empty(t, plain[0])
	})
}
