package fault

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type owner []string

func (o *owner) Quarantine(reason string) { *o = append(*o, reason) }

func TestContain(t *testing.T) {
	var o owner
	func() { defer Contain(&o, "work") }()
	require.Empty(t, o)
	func() {
		defer Contain(&o, "work")
		panic("a bug")
	}()
	func() {
		defer Contain(&o, "work")
		var p *int
		*p = 1
	}()
	require.Len(t, o, 2)
	require.Equal(t, "the server failed in work: a bug, at fault_test.go:19", o[0])
	require.Contains(t, o[1], "nil pointer dereference, at fault_test.go:24")
}
