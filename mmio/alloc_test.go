package mmio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// hotAccesses are the kinds of access a guest makes most.
var hotAccesses = []struct {
	name string
	off  uint32
	size int
}{
	{"register", 0x200, 4},
	{"register-with-effect", 0x1400, 4},
	{"repeated", 0x1430, 4},
	{"narrow-pair", 0x210, 4},
	{"two-registers", 0x1420, 8},
	{"straddling", 0x1ff, 2},
	{"aperture", 0x3000, 4},
	{"aperture-64", 0x3000, 64},
	{"hole", 0x104, 4},
	{"outside", 0x3ffe, 4},
}

func TestNoAllocations(t *testing.T) {
	for _, a := range hotAccesses {
		s := smallSpace(t)
		p := make([]byte, a.size)
		s.Read(a.off, p)
		require.Zero(t, testing.AllocsPerRun(200, func() { s.Read(a.off, p) }), "read of %s", a.name)
		require.Zero(t, testing.AllocsPerRun(200, func() { s.Write(a.off, p) }), "write of %s", a.name)
		s.Read32(a.off)
		require.Zero(t, testing.AllocsPerRun(200, func() { s.Read32(a.off); s.Write32(a.off, 1) }), "dword of %s", a.name)
	}
	s, err := New(1<<20, nil, nil, nil)
	require.NoError(t, err)
	s.Read32(0)
	off := uint32(0)
	require.Zero(t, testing.AllocsPerRun(5000, func() { s.Read32(off); off += 4 }), "holes never seen before")
}
