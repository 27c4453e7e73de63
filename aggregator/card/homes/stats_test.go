package homes

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCountsNameEveryCounter sets each counter to a number of its own: one that
// Counts leaves out, or reads twice, is one that no report shows.
func TestCountsNameEveryCounter(t *testing.T) {
	var s Stats
	n := uint64(0)
	want := map[uint64]bool{}
	set := func(v reflect.Value) {
		n++
		want[n] = true
		switch c := v.Addr().Interface().(type) {
		case *atomic.Uint64:
			c.Store(n)
		case *atomic.Int64:
			c.Store(int64(n))
		default:
			t.Fatalf("%T is no counter", c)
		}
	}
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Array {
			for j := range f.Len() {
				set(f.Index(j))
			}
			continue
		}
		set(f)
	}
	names := map[string]bool{}
	for _, c := range s.Counts() {
		require.True(t, want[c.N], c.Name)
		delete(want, c.N)
		require.False(t, names[c.Name], c.Name)
		names[c.Name] = true
	}
	require.Empty(t, want)
}
