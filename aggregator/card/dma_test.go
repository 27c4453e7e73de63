package card_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// TestMappingsAgainstTwin maps and unmaps runs of ranges, of thousands at a time, and holds the table
// against a flat one.
func TestMappingsAgainstTwin(t *testing.T) {
	const unit, units = 16, 4096
	rapid.Check(t, func(t *rapid.T) {
		var m card.Mappings
		var twin [units]*byte // the range that holds the unit
		check := func(from, to int) {
			for u := max(from-2, 0); u < min(to+2, units); u++ {
				got, off := m.At(uint64(u)*unit+3, false)
				if (got != nil) != (twin[u] != nil) || got != nil && &got.Mem[off-3] != twin[u] {
					t.Fatalf("unit %d: %v at %d", u, got, off)
				}
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			from := rapid.IntRange(0, units-1).Draw(t, "from")
			to := min(units, from+rapid.SampledFrom([]int{1, 3, 300, 2000}).Draw(t, "units"))
			if rapid.Bool().Draw(t, "map") {
				each := rapid.IntRange(1, 3).Draw(t, "each")
				for u := from; u+each <= to; u += each {
					free := true
					for _, b := range twin[u : u+each] {
						free = free && b == nil
					}
					mem := make([]byte, each*unit)
					if err := m.Map(uint64(u)*unit, card.Mapping{Mem: mem}); free != (err == nil) {
						t.Fatalf("unit %d: %v", u, err)
					}
					for i := 0; free && i < each; i++ {
						twin[u+i] = &mem[i*unit]
					}
				}
				check(from, to)
				continue
			}
			removed := make(map[*byte]bool)
			for _, r := range m.Unmap(uint64(from)*unit, uint64(to-from)*unit) {
				for i := 0; i < len(r.Mem); i += unit {
					removed[&r.Mem[i]] = true
				}
			}
			for u := range twin {
				if u >= from && u < to && (twin[u] != nil) != removed[twin[u]] {
					t.Fatalf("unit %d stays", u)
				}
				if removed[twin[u]] {
					twin[u] = nil
				}
			}
			check(from, to)
		}
		check(0, units)
	})
}

// TestChangesCopyLittle: what one mapping more or less allocates does not grow with the number of them.
func TestChangesCopyLittle(t *testing.T) {
	var m card.Mappings
	mem := make([]byte, 1)
	for i := range uint64(60000) {
		require.NoError(t, m.Map(2*i, card.Mapping{Mem: mem}))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const changes = 100
	for i := range uint64(changes) {
		m.Unmap(1000*i, 1)
		require.NoError(t, m.Map(1000*i, card.Mapping{Mem: mem}))
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/changes, uint64(64<<10))
}
