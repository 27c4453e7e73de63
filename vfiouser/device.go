package vfiouser

import (
	"fmt"
	"os"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Device is what one socket serves. Its methods are called from the connection's one OS
// thread, never concurrently, also from one client to the next.
//
// An error that wraps a syscall.Errno is answered with that errno, any other with EIO.
type Device interface {
	// Regions returns the regions by index (BAR0 to VGA), at most NumRegions. It is read by
	// NewServer and once per client, after Attached.
	Regions() []Region
	// IRQs returns the interrupt indexes (INTx to REQ), at most NumIRQs. It is read by
	// NewServer and once per client, after Attached.
	IRQs() []IRQ
	// ReadRegion fills p, zeroed before, from off. off+len(p) is inside the region and len(p)
	// is not 0. p must not be kept.
	ReadRegion(index int, off uint64, p []byte) error
	// WriteRegion stores p at off. off+len(p) is inside the region and len(p) is not 0. p must
	// not be kept.
	WriteRegion(index int, off uint64, p []byte) error
	// Reset brings the device to its power-on state.
	Reset() error
	// Attached hands over the host side for the life of one client connection. It is called
	// when the client has negotiated the version, before any other of its messages is served.
	Attached(h *Host)
	// Detached ends the use of the Host that Attached began. No DMA region is mapped, and no
	// method of the Host has an effect any more.
	Detached()
}

// Indexes of the PCI regions.
const (
	RegionBAR0 = iota
	RegionBAR1
	RegionBAR2
	RegionBAR3
	RegionBAR4
	RegionBAR5
	RegionROM
	RegionConfig
	RegionVGA

	NumRegions
)

// Indexes of the interrupts.
const (
	IRQINTx = iota
	IRQMSI
	IRQMSIX
	IRQErr
	IRQReq

	NumIRQs
)

// RegionFlags are a client's rights on a region.
type RegionFlags uint32

// Flags of a region, as VFIO numbers them.
const (
	RegionRead  RegionFlags = RegionFlags(wire.RegionFlagRead)
	RegionWrite RegionFlags = RegionFlags(wire.RegionFlagWrite)
	// RegionMmap offers File to the client. One mappable region makes QEMU wait for every BAR
	// write of the device.
	RegionMmap RegionFlags = RegionFlags(wire.RegionFlagMmap)
)

// SparseArea is a mappable part of a region, relative to the region, in bytes.
type SparseArea = wire.Area

// Region is one PCI region.
type Region struct {
	Size  uint64 // bytes; 0 = absent
	Flags RegionFlags

	// The rest counts with RegionMmap only.
	File      *os.File     // stays the device's; the client gets a duplicate
	MapOffset uint64       // of the region's first byte in File
	Areas     []SparseArea // what may be mapped; empty = all of it
}

// IRQFlags describe an interrupt index.
type IRQFlags uint32

// Flags of an interrupt index, as VFIO numbers them.
const (
	IRQEventFD  IRQFlags = IRQFlags(wire.IRQFlagEventFD)
	IRQMaskable IRQFlags = IRQFlags(wire.IRQFlagMaskable)
	// IRQAutomasked makes each signalled vector masked until the client unmasks it, as a
	// level-triggered INTx needs.
	IRQAutomasked IRQFlags = IRQFlags(wire.IRQFlagAutomasked)
	IRQNoResize   IRQFlags = IRQFlags(wire.IRQFlagNoResize)
)

// IRQ is one interrupt index.
type IRQ struct {
	Count int // vectors; 0 = absent
	Flags IRQFlags
}

// maxVectors is the highest count of vectors an index may have: what MSI-X can number.
const maxVectors = 2048

// Admitter is a Device that cannot take every client.
type Admitter interface {
	// Admit is called before Attached. If it fails the client is refused, counted and
	// logged, and neither Attached nor Detached is called.
	Admit() error
	// Dismissed reports that the admitted client disconnected before it was attached.
	Dismissed()
}

// Admit asks d whether it accepts a client.
func Admit(d Device) error {
	if a, ok := d.(Admitter); ok {
		return a.Admit()
	}
	return nil
}

// Dismiss reports to d that the client that it admitted did not attach.
func Dismiss(d Device) {
	if a, ok := d.(Admitter); ok {
		a.Dismissed()
	}
}

// IRQObserver is a Device that is notified of the client's changes to its interrupts.
type IRQObserver interface {
	// IRQUnmasked is called when a vector can signal again: the client has unmasked it, or
	// has given it an eventfd. A level-triggered source checks its line and calls
	// Host.Trigger if it is high.
	IRQUnmasked(index, vector int)
}

// PanicObserver is a Device that is told of the panics that the server contained.
type PanicObserver interface {
	// Panicked reports a panic p in the work for the present client, with no lock of the
	// server's held.
	Panicked(where string, p any)
}

// Migrator is a Device whose state can be saved and restored while it is stopped (VFIO
// migration version 2). The server walks the state machine; the device sees single arcs.
type Migrator interface {
	// MigrationFlags are of wire.MigFlag*. StopCopy is the least.
	MigrationFlags() uint64
	// MigrateTo takes one arc between adjacent states of wire.Mig*. After an error the device
	// is in from, unless the error wraps ErrMigrationLost.
	MigrateTo(from, to uint32) error
	// ReadMigration fills p with the next bytes of the state; fewer than asked are the last.
	ReadMigration(p []byte) (int, error)
	// WriteMigration takes the next bytes of a state.
	WriteMigration(p []byte) error
}

func checkRegions(regions []Region) error {
	if len(regions) > NumRegions {
		return fmt.Errorf("vfiouser: device has %d regions; PCI has %d", len(regions), NumRegions)
	}
	for i := range regions {
		if err := regions[i].check(i); err != nil {
			return fmt.Errorf("vfiouser: region %d: %w", i, err)
		}
	}
	return nil
}

func (r *Region) check(index int) error {
	if r.Size == 0 {
		return nil
	}
	switch {
	case index <= RegionBAR5 && (r.Size < 4 || r.Size&(r.Size-1) != 0):
		return fmt.Errorf("size %#x: a BAR is a power of two and 4 bytes or more", r.Size)
	case index == RegionConfig && r.Size != 256 && r.Size != 4096:
		return fmt.Errorf("size %d: configuration space is 256 or 4096 bytes", r.Size)
	case r.Size >= 1<<62:
		return fmt.Errorf("size %#x is 2^62 or more", r.Size)
	case r.Flags&^(RegionRead|RegionWrite|RegionMmap) != 0:
		return fmt.Errorf("flags %#x: only RegionRead, RegionWrite and RegionMmap are the device's to set", r.Flags)
	}
	if r.Flags&RegionMmap == 0 {
		return nil
	}
	if r.File == nil {
		return fmt.Errorf("RegionMmap without a File")
	}
	if r.MapOffset%pageSize != 0 {
		return fmt.Errorf("MapOffset %#x is not a multiple of %d", r.MapOffset, pageSize)
	}
	if len(r.Areas) > maxAreas {
		return fmt.Errorf("%d sparse areas; at most %d", len(r.Areas), maxAreas)
	}
	for _, a := range r.Areas {
		if a.Offset%pageSize != 0 || a.Size%pageSize != 0 || a.Size == 0 || a.Offset > r.Size || a.Size > r.Size-a.Offset {
			return fmt.Errorf("sparse area %#x+%#x: not whole pages of %d inside %#x bytes", a.Offset, a.Size, pageSize, r.Size)
		}
	}
	return nil
}

func checkIRQs(irqs []IRQ) error {
	if len(irqs) > NumIRQs {
		return fmt.Errorf("vfiouser: device has %d interrupt indexes; PCI has %d", len(irqs), NumIRQs)
	}
	for i, q := range irqs {
		if q.Count < 0 || q.Count > maxVectors {
			return fmt.Errorf("vfiouser: interrupt index %d: count %d is not in 0..%d", i, q.Count, maxVectors)
		}
	}
	return nil
}

const (
	pageSize = 4096
	// maxAreas bounds the reply to DEVICE_GET_REGION_INFO (16 KiB).
	maxAreas = 1024
)
