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
	areas []vfiouser.SparseArea
}

const windowAt = 0x10000

func (d *windowed) Regions() []vfiouser.Region {
	r := d.everything.Regions()
	r[vfiouser.RegionBAR1].MapOffset, r[vfiouser.RegionBAR1].Areas = windowAt, d.areas
	return r
}

func (d *windowed) ReadRegion(index int, off uint64, p []byte) error {
	return d.everything.ReadRegion(index, windowAt+off, p)
}

func (d *windowed) WriteRegion(index int, off uint64, p []byte) error {
	return d.everything.WriteRegion(index, windowAt+off, p)
}

// TestMappedRegions: what a client stores in its mapping of a region, by message, or the device in its
// file, the others see. The suite checks the form of the region info.
func TestMappedRegions(t *testing.T) {
	for name, areas := range map[string][]vfiouser.SparseArea{
		"whole":    nil,
		"one part": {{Offset: 0x3000, Size: 0x5000}},
		"parts":    {{Offset: 0x1000, Size: 0x1000}, {Offset: 0x3000, Size: 0x2000}, {Offset: 0x7000, Size: 0x1000}},
	} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, by maker) {
				d := &windowed{newEverything(t), areas}
				require.NoError(t, d.shared.Truncate(windowAt+sharedSize))
				tr, path := serveAt(t, by, d)
				c, err := client.Dial(path, nil)
				require.NoError(t, err)
				defer c.Close()
				info, err := c.RegionInfo(vfiouser.RegionBAR1)
				require.NoError(t, err)
				defer info.File.Close()
				want := areas
				if areas == nil {
					want = []vfiouser.SparseArea{{Offset: 0, Size: sharedSize}}
				}
				if _, native := tr.(*vfiouser.Server); !native && len(areas) > 1 {
					want = areas[1:2] // the largest
				}
				require.Equal(t, want, info.Areas)
				for _, a := range info.Areas {
					m, err := info.Mmap(a)
					require.NoError(t, err)
					defer unix.Munmap(m)
					at, end, got := a.Offset+a.Size-8, len(m)-8, make([]byte, 8)
					copy(m[end:], "mapped!!")
					require.NoError(t, c.Read(vfiouser.RegionBAR1, at, got))
					require.Equal(t, "mapped!!", string(got))
					require.NoError(t, c.Write(vfiouser.RegionBAR1, at, []byte("message!")))
					require.Equal(t, "message!", string(m[end:]))
					_, err = d.shared.ReadAt(got, int64(windowAt+at))
					require.NoError(t, err)
					require.Equal(t, "message!", string(got))
				}
			})
		})
	}
}
