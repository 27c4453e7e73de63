package jit

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
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
	var got Description
	require.NoError(t, got.Decode(d.encode(nil)))
	require.Equal(t, d, got)
	require.Error(t, got.Decode(nil))
}
