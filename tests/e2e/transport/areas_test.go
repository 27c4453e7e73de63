package transport

import (
	"encoding/binary"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// Two areas of BAR0 without registers, with a trapped page between them, and the place
// of BAR0 in a file.
var (
	areas      = []vfiouser.SparseArea{{Offset: 0xffc000, Size: 0x2000}, {Offset: 0xfff000, Size: 0x1000}}
	fileOffset = uint64(0x10000)
)

// partly is a card with a BAR0 of which QEMU can map two areas.
type partly struct {
	*serve.Device
	file *os.File

	mu     sync.Mutex
	writes map[uint64]int // trapped ones, by offset
}

func newPartly(c *soft.Card) (*partly, error) {
	fd, err := unix.MemfdCreate("parts", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	d := &partly{Device: serve.NewPassThrough(c, passthrough.Config{}), file: os.NewFile(uintptr(fd), "parts"), writes: map[uint64]int{}}
	return d, d.file.Truncate(int64(fileOffset + d.Device.Regions()[0].Size))
}

func (d *partly) Regions() []vfiouser.Region {
	r := d.Device.Regions()
	bar := &r[vfiouser.RegionBAR0]
	bar.Flags |= vfiouser.RegionMmap
	bar.File, bar.MapOffset, bar.Areas = d.file, fileOffset, areas
	return r
}

// inside reports whether an access is to an area. The device answers these from the
// file, because a client need not map an area.
func inside(index int, off uint64) bool {
	if index != vfiouser.RegionBAR0 {
		return false
	}
	for _, a := range areas {
		if off >= a.Offset && off < a.Offset+a.Size {
			return true
		}
	}
	return false
}

func (d *partly) ReadRegion(index int, off uint64, p []byte) error {
	if inside(index, off) {
		_, err := d.file.ReadAt(p, int64(fileOffset+off))
		return err
	}
	return d.Device.ReadRegion(index, off, p)
}

func (d *partly) WriteRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionBAR0 {
		d.mu.Lock()
		d.writes[off]++
		d.mu.Unlock()
	}
	if inside(index, off) {
		_, err := d.file.WriteAt(p, int64(fileOffset+off))
		return err
	}
	return d.Device.WriteRegion(index, off, p)
}

func (d *partly) trapped(off uint64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes[off]
}

// TestAreas has a guest write into the areas of a BAR that QEMU may map, and into the
// page between them. On both transports the bytes are in the file, at the right place,
// and those to a mapped area make no trap.
func TestAreas(t *testing.T) {
	scale.ReleaseOnly(t)
	labtest.Need(t)
	for _, tr := range []struct {
		name   string
		make   serve.Make
		mapped []bool // each area
	}{
		{serve.TransportNative, serve.Native, []bool{true, true}},
		{serve.TransportLibrary, libvfiouser.New, []bool{true, false}}, // one a region: see libvfiouser.Lacks
	} {
		t.Run(tr.name, func(t *testing.T) {
			if tr.name == serve.TransportLibrary && !libvfiouser.Built {
				t.Skip(libvfiouser.ErrNotBuilt)
			}
			var d *partly
			var failed error
			t.Cleanup(func() { d.file.Close() }) // after the machine's end
			_, call := boot(t, testserver.Config{Transport: tr.make, Device: func(c *soft.Card) vfiouser.Device {
				d, failed = newPartly(c)
				return d
			}})
			require.NoError(t, failed)
			var found proto.PCIResult
			call(proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &found)
			require.Len(t, found.Functions, 1)
			write := func(off uint64, n int) (r proto.TrapsResult) {
				call(proto.CmdTraps, proto.TrapsArgs{Address: found.Functions[0].Address, Offset: uint32(off), Write: true, Count: n}, &r)
				return r
			}
			for i, a := range areas {
				for k, off := range []uint64{a.Offset, a.Offset + a.Size - 4} {
					n := 100 + 10*i + k
					require.EqualValues(t, n, write(off, n).Last)
					var b [4]byte
					_, err := d.file.ReadAt(b[:], int64(fileOffset+off))
					require.NoError(t, err)
					require.EqualValues(t, n, binary.LittleEndian.Uint32(b[:]), "offset %#x in the file", off)
					want := n
					if tr.mapped[i] {
						want = 0
					}
					require.Equal(t, want, d.trapped(off), "traps at offset %#x", off)
				}
			}
			between := areas[0].Offset + areas[0].Size
			write(between, 7)
			require.Equal(t, 7, d.trapped(between))
		})
	}
}
