package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// windowed has its BAR1 in the middle of a file, in parts or whole.
type windowed struct {
	*everything
	offset uint64
	areas  []vfiouser.SparseArea
}

func (d *windowed) Regions() []vfiouser.Region {
	r := d.everything.Regions()
	r[vfiouser.RegionBAR1].MapOffset, r[vfiouser.RegionBAR1].Areas = d.offset, d.areas
	return r
}

func (d *windowed) ReadRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionBAR1 {
		off += d.offset
	}
	return d.everything.ReadRegion(index, off, p)
}

func (d *windowed) WriteRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionBAR1 {
		off += d.offset
	}
	return d.everything.WriteRegion(index, off, p)
}

// TestMappedRegions: a client's mapping of a region, its reads by message, and the device's memory
// have the same bytes, on one transport after the other. The suite checks the form of the region info.
func TestMappedRegions(t *testing.T) {
	for _, c := range []struct {
		name  string
		areas []vfiouser.SparseArea
	}{
		{"whole", nil},
		{"one part", []vfiouser.SparseArea{{Offset: 0x3000, Size: 0x5000}}},
		{"parts", []vfiouser.SparseArea{{Offset: 0x1000, Size: 0x1000}, {Offset: 0x3000, Size: 0x2000}, {Offset: 0x7000, Size: 0x1000}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := newEverything(t)
			d := &windowed{dev, 0x10000, c.areas}
			require.NoError(t, d.shared.Truncate(0x10000+sharedSize))
			want := make([]byte, sharedSize) // written through all transports
			eachTransport(t, func(t *testing.T, by maker) {
				tr, path := serveAt(t, by, d)
				cl, err := client.Dial(path, nil)
				require.NoError(t, err)
				defer cl.Close()
				info, err := cl.RegionInfo(vfiouser.RegionBAR1)
				require.NoError(t, err)
				defer info.File.Close()
				require.EqualValues(t, d.offset, info.Offset)
				expected := c.areas
				if expected == nil {
					expected = []vfiouser.SparseArea{{Offset: 0, Size: sharedSize}}
				}
				if _, native := tr.(*vfiouser.Server); !native && len(expected) > 1 {
					expected = expected[1:2] // the largest
				}
				require.Equal(t, expected, info.Areas)
				maps := map[uint64][]byte{}
				for _, a := range info.Areas {
					m, err := info.Mmap(a)
					require.NoError(t, err)
					defer unix.Munmap(m)
					maps[a.Offset] = m
				}
				same := func() {
					t.Helper()
					got := make([]byte, sharedSize)
					require.NoError(t, cl.Read(vfiouser.RegionBAR1, 0, got))
					require.Equal(t, want, got, "by message")
					_, err := d.shared.ReadAt(got, int64(d.offset))
					require.NoError(t, err)
					require.Equal(t, want, got, "the device's")
					for off, m := range maps {
						require.Equal(t, want[off:][:len(m)], m, "mapped at %#x", off)
					}
				}
				same() // still there from the previous transport
				for off, m := range maps {
					copy(m[len(m)-8:], "mapped!!")
					copy(want[off:][len(m)-8:], "mapped!!")
					same()
				}
				for off := uint64(0); off < sharedSize; off += 0x800 { // parts that are not mapped as well
					v := append([]byte(t.Name()[len(t.Name())-6:]), byte(off>>8))
					require.NoError(t, cl.Write(vfiouser.RegionBAR1, off, v))
					copy(want[off:], v)
				}
				same()
			})
		})
	}
}
