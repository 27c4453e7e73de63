package aggregator

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCountsNameEveryCounter sets each counter to a number of its own: a counter
// that Counts leaves out, or reads twice, is one that no report shows.
func TestCountsNameEveryCounter(t *testing.T) {
	var s GuestStats
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		v.Field(i).Addr().Interface().(*atomic.Uint64).Store(uint64(i + 1))
	}
	names := make(map[string]bool)
	counts := s.Counts()
	require.Len(t, counts, v.NumField())
	for i, c := range counts {
		require.Equal(t, uint64(i+1), c.N, c.Name)
		require.False(t, names[c.Name], c.Name)
		names[c.Name] = true
	}
}
