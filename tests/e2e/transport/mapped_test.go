package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// Two parts of BAR0 without registers, with a page between them that stays trapped, and where
// their bytes are in a file.
var (
	parts      = []vfiouser.SparseArea{{Offset: 0xffc000, Size: 0x2000}, {Offset: 0xfff000, Size: 0x1000}}
	fileOffset = uint64(0x10000)
)

// partly is a card of whose BAR0 QEMU can map two parts.
type partly struct {
	*serve.Device
	file *os.File

	mu     sync.Mutex
	writes map[uint64]int // that were trapped, by offset
}

func newPartly(c *soft.Card) (*partly, error) {
	fd, err := unix.MemfdCreate("parts", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	d := &partly{Device: serve.NewPassThrough(c), file: os.NewFile(uintptr(fd), "parts"), writes: map[uint64]int{}}
	return d, d.file.Truncate(int64(fileOffset + d.Device.Regions()[0].Size))
}

func (d *partly) Regions() []vfiouser.Region {
	r := d.Device.Regions()
	bar := &r[vfiouser.RegionBAR0]
	bar.Flags |= vfiouser.RegionMmap
	bar.File, bar.MapOffset, bar.Areas = d.file, fileOffset, parts
	return r
}

// inside says that an access is to a part, which the device answers from the file: a client need
// not map what it may.
func inside(index int, off uint64) bool {
	if index != vfiouser.RegionBAR0 {
		return false
	}
	for _, a := range parts {
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

// TestParts: a guest writes into the parts of a BAR that QEMU may map, and into the page between
// them. On both transports its bytes are in the file, at the right place; those to a part that is
// mapped made no trap.
func TestParts(t *testing.T) {
	labtest.Need(t)
	for _, tr := range []struct {
		name   string
		make   serve.Make
		mapped []bool // the parts
	}{
		{serve.TransportNative, serve.Native, []bool{true, true}},
		{serve.TransportLibrary, libvfiouser.New, []bool{true, false}}, // one a region: see libvfiouser.Lacks
	} {
		t.Run(tr.name, func(t *testing.T) {
			if tr.name == serve.TransportLibrary && !libvfiouser.Built {
				t.Skip(libvfiouser.ErrNotBuilt)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var d *partly
			var failed error
			s, err := stand.Start(ctx, stand.Config{
				Transport: tr.make, Machine: lab.Config{},
				Device: func(c *soft.Card) vfiouser.Device {
					d, failed = newPartly(c)
					return d
				},
			})
			require.NoError(t, errors.Join(err, failed))
			defer d.file.Close()
			defer func() {
				if t.Failed() {
					t.Log(s.VM.Diagnosis())
				}
				require.NoError(t, s.Close())
			}()
			var found proto.PCIResult
			require.NoError(t, s.VM.Agent().Call(ctx, proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &found))
			require.Len(t, found.Functions, 1, "the card is not in the guest")
			write := func(off uint64, n int) proto.TrapsResult {
				var r proto.TrapsResult
				a := proto.TrapsArgs{Address: found.Functions[0].Address, Offset: uint32(off), Write: true, Count: n}
				require.NoError(t, s.VM.Agent().Call(ctx, proto.CmdTraps, a, &r))
				return r
			}
			for i, a := range parts {
				for k, off := range []uint64{a.Offset, a.Offset + a.Size - 4} {
					n := 100 + 10*i + k
					require.EqualValues(t, n, write(off, n).Last)
					var b [4]byte
					_, err := d.file.ReadAt(b[:], int64(fileOffset+off))
					require.NoError(t, err)
					require.EqualValues(t, n, binary.LittleEndian.Uint32(b[:]), "offset %#x in the file", off)
					if tr.mapped[i] {
						require.Zero(t, d.trapped(off), "offset %#x is trapped", off)
					} else {
						require.Equal(t, n, d.trapped(off), "offset %#x", off)
					}
				}
			}
			between := parts[0].Offset + parts[0].Size
			write(between, 7)
			require.Equal(t, 7, d.trapped(between))
		})
	}
}
