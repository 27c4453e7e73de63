// Package conformance runs the conformance suite against servers: our own, the
// binding to libvfio-user, that library's samples, and a server with planted
// faults, which has to be caught.
//
// It owns a device that has something of everything, so that no case is without
// its subject. It has no locks; its goroutines are the servers', which end with
// the test that started them.
package conformance

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// everything is a device with a trapped BAR, a mappable BAR with two areas, a
// configuration space that stores, four MSI-X vectors, and a state of 100,000
// bytes that migrates.
type everything struct {
	config [4096]byte
	bar0   [0x1000]byte
	shared *os.File
	state  []byte
	read   int
	in     []byte
}

const sharedSize = 0x8000

func newEverything(t testing.TB) *everything {
	t.Helper()
	d := &everything{state: make([]byte, 100_000)}
	for i := range d.state {
		d.state[i] = byte(i * 7)
	}
	fd, err := unix.MemfdCreate("bar1", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	d.shared = os.NewFile(uintptr(fd), "bar1")
	t.Cleanup(func() { d.shared.Close() })
	require.NoError(t, d.shared.Truncate(sharedSize))
	copy(d.config[:], []byte{0xde, 0x10, 0x01, 0x00})
	binary.LittleEndian.PutUint32(d.config[8:], 0x03000001)
	return d
}

const rw = vfiouser.RegionRead | vfiouser.RegionWrite

func (d *everything) Regions() []vfiouser.Region {
	r := make([]vfiouser.Region, vfiouser.NumRegions)
	r[vfiouser.RegionBAR0] = vfiouser.Region{Size: uint64(len(d.bar0)), Flags: rw}
	r[vfiouser.RegionBAR1] = vfiouser.Region{
		Size: sharedSize, Flags: rw | vfiouser.RegionMmap, File: d.shared,
		Areas: []vfiouser.SparseArea{{Offset: 0, Size: 0x1000}, {Offset: 0x2000, Size: 0x1000}},
	}
	r[vfiouser.RegionConfig] = vfiouser.Region{Size: uint64(len(d.config)), Flags: rw}
	return r
}

func (d *everything) IRQs() []vfiouser.IRQ {
	irqs := make([]vfiouser.IRQ, vfiouser.NumIRQs)
	irqs[vfiouser.IRQINTx] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQEventFD | vfiouser.IRQMaskable | vfiouser.IRQAutomasked}
	irqs[vfiouser.IRQMSIX] = vfiouser.IRQ{Count: 4, Flags: vfiouser.IRQEventFD}
	irqs[vfiouser.IRQErr] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQEventFD}
	irqs[vfiouser.IRQReq] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQEventFD}
	return irqs
}

func (d *everything) bytes(index int) []byte {
	switch index {
	case vfiouser.RegionBAR0:
		return d.bar0[:]
	case vfiouser.RegionConfig:
		return d.config[:]
	}
	return nil
}

func (d *everything) ReadRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionBAR1 {
		_, err := d.shared.ReadAt(p, int64(off))
		return err
	}
	copy(p, d.bytes(index)[off:])
	return nil
}

func (d *everything) WriteRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionBAR1 {
		_, err := d.shared.WriteAt(p, int64(off))
		return err
	}
	copy(d.bytes(index)[off:], p)
	return nil
}

func (d *everything) Reset() error            { return nil }
func (d *everything) Attached(*vfiouser.Host) {}
func (d *everything) Detached()               {}

func (d *everything) MigrationFlags() uint64 { return wire.MigFlagStopCopy }

func (d *everything) MigrateTo(_, to uint32) error {
	d.read = 0
	if to == wire.MigResuming {
		d.in = nil
	}
	return nil
}

func (d *everything) ReadMigration(p []byte) (int, error) {
	n := copy(p, d.state[d.read:])
	d.read += n
	return n, nil
}

func (d *everything) WriteMigration(p []byte) error {
	d.in = append(d.in, p...)
	return nil
}

var (
	_ vfiouser.Device   = (*everything)(nil)
	_ vfiouser.Migrator = (*everything)(nil)
)
