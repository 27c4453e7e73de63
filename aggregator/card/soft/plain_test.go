package soft

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the card knows is plain data: no pointer to a part of the card, no lock, and nothing that
// an encoder would leave out.
func TestStateIsPlain(t *testing.T) {
	var plain func(reflect.Type, string)
	plain = func(v reflect.Type, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Field(i)
				require.True(t, f.IsExported(), "%s.%s", path, f.Name)
				plain(f.Type, path+"."+f.Name)
			}
		case reflect.Array, reflect.Slice, reflect.Pointer:
			plain(v.Elem(), path)
		default:
			require.True(t, v.Kind() <= reflect.Float64, "%s is a %v", path, v)
		}
	}
	for _, state := range []any{ChannelState{}, FIFOState{}, Contexts{}, BARState{}} {
		plain(reflect.TypeOf(state), reflect.TypeOf(state).Name())
	}
}
