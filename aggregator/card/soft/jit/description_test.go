package jit

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
)

// TestDescription: a description says all that a launch has but for what executes it.
func TestDescription(t *testing.T) {
	d := Description{Region: 1}
	n := uint64(1)
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		case reflect.Uint32, reflect.Uint64:
			n++
			v.SetUint(n)
		case reflect.Bool:
			v.SetBool(true)
		}
	}
	var got Description
	check := func() {
		t.Helper()
		got = Description{Bound: Bound{Surfaces: [8]sm.Surface{{Format: 1}}}}
		require.NoError(t, got.Decode(d.encode(nil)))
		require.Equal(t, d, got)
	}
	l := reflect.ValueOf(&d.Launch).Elem()
	for i := range l.NumField() {
		f := l.Field(i)
		if f.Kind() != reflect.Array {
			fill(f)
			continue
		}
		for j := range f.Len() {
			fill(f.Index(j))
		}
	}
	check()
	d.Bound.Textures.HeaderSlots[255], d.Bound.Textures.Linked = sm.Slot{Index: 7, Bound: true}, true
	d.Bound.Surfaces[7] = sm.Surface{Address: 8, Width: 9, Format: 10, Log2Block: [2]uint8{11, 12}}
	check()
	require.LessOrEqual(t, len(d.encode(nil)), MaxBody)
	require.Error(t, got.Decode(nil))
}
