package gsp

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestABI: each member lies inside of its structure, which is named like it.
func TestABI(t *testing.T) {
	v := reflect.ValueOf(abi570)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		m, is := v.Field(i), v.Field(i).Type() == reflect.TypeFor[place]()
		if !is {
			require.False(t, m.IsZero(), name)
			continue
		}
		end := strings.IndexFunc(name, func(r rune) bool { return r < 'a' })
		p := place{int(m.Field(0).Int()), int(m.Field(1).Int()), int(m.Field(2).Int())}
		count := map[string]int{"static": 2, "vectors": len(Engines) + 1, "engines": len(Engines), "contexts": maxContexts, "zcull": maxZcull, "log": maxLogText}[name[:end]]
		require.Positive(t, p.size, name)
		require.LessOrEqual(t, p.at+p.size+max(count-1, 0)*p.stride, int(v.FieldByName(name[:end]+"Size").Int()), name)
	}
}
