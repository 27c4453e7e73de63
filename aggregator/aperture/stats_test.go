package aperture

import (
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCountsNameEveryCounter sets each counter to a different number, to find one that
// Counts omits or reads twice.
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
		if b, ok := f.Addr().Interface().(*ByWindow); ok { // its parts stay apart from all numbers of others
			n++
			for k := range b {
				b[k].Store(n * uint64(1000+k))
			}
			want[b.Load()] = true
			continue
		}
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
		require.Equal(t, strings.HasPrefix(c.Name, "map_inexact_"), c.In != nil, c.Name)
		for k, in := range c.In {
			require.Equal(t, uint64(1000+k), in*(3*1000+1+2)/c.N, "%s in %v", c.Name, Kind(k))
		}
	}
	require.Empty(t, want)
}

// TestInexactSaysWhy: each counter of inexact slots has a reason of its own and a consequence
// for the guest; no other counter has one. The counter that every client raises when it
// attaches is marked, so that it is not reported.
func TestInexactSaysWhy(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range new(Stats).Counts() {
		inexact := strings.HasPrefix(c.Name, "map_inexact_")
		require.Equal(t, inexact, c.Why != "", c.Name)
		require.Equal(t, inexact, c.Then != "", c.Name)
		require.False(t, inexact && seen[c.Why], c.Name)
		seen[c.Why] = true
		require.Equal(t, c.Name == "map_inexact_physical", c.Usual, c.Name)
	}
}
