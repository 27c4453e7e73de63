package libvfiouser

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser"
)

func TestOffered(t *testing.T) {
	a, b, c := vfiouser.SparseArea{Offset: 0x1000, Size: 0x1000}, vfiouser.SparseArea{Offset: 0x8000, Size: 0x3000}, vfiouser.SparseArea{Offset: 0xc000, Size: 0x3000}
	require.Equal(t, a, offered([]vfiouser.SparseArea{a}))
	require.Equal(t, b, offered([]vfiouser.SparseArea{a, b, c}), "the largest, the first of two")
}
