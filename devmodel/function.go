package devmodel

import (
	"sync"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/pci"
)

// BARs of a virtual GPU.
const (
	BAR0 = 0 // registers
	BAR1 = 1 // memory through page tables
	BAR3 = 3 // memory through page tables
)

// Host receives a virtual GPU's interrupt. Interrupt must not block and must not call back.
type Host interface {
	Interrupt(mmio.Line)
}

// Windows are those on a guest's memory, which its machine may map. MemoryBarrier is called before accesses
// of rows that are barriers, and before interrupts: afterwards the card finds all bytes that were written
// without a trap. Access is called before any access of a register.
type Windows interface {
	MemoryBarrier()
	Access()
}

// Function is a virtual GPU's PCI function. Its owner sets the fields before the first access.
type Function struct {
	Space *mmio.Space
	PCI   *pci.ConfigSpace
	Chip  Chip
	Windows

	Mu   sync.Mutex // guards everything that a guest can see
	host Host       // nil if none is attached
	pin  pci.Pin
}

// Chip is the part of a function that is one chip's. Mu is held in its calls, which never wait.
type Chip struct {
	// InPRAMIN reports whether an access of n bytes of BAR0 stays in the window on memory.
	InPRAMIN func(off uint64, n int) bool
	// ReadBAR and WriteBAR access memory through BAR1 or BAR3.
	ReadBAR, WriteBAR func(bar int, off uint64, p []byte)
	// Settle returns the state of the interrupt tree, and whether a message is due.
	Settle func() (level, edge bool)
}

// Registers returns the register space, for its counters.
func (f *Function) Registers() *mmio.Space { return f.Space }

// BARSize returns a BAR's size in bytes, 0 if there is no such BAR.
func (f *Function) BARSize(bar int) uint64 { return f.PCI.BARSize(bar) }

// ConfigSize is the size of the configuration space in bytes.
func (f *Function) ConfigSize() uint64 { return uint64(f.PCI.Size()) }

// ReadConfig serves a read of the configuration space.
func (f *Function) ReadConfig(off uint32, p []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.PCI.Read(off, p)
}

// WriteConfig serves a write to the configuration space.
func (f *Function) WriteConfig(off uint32, p []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.PCI.Write(off, p)
	f.Settle()
}

// ReadBAR serves a guest's read. Bytes that nothing answers read as ones.
func (f *Function) ReadBAR(bar int, off uint64, p []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	switch bar {
	case BAR0:
		f.beginAccess(off, len(p), mmio.BarrierRead)
		f.Space.Read(uint32(off), p)
		f.Settle()
	case BAR1, BAR3:
		f.Chip.ReadBAR(bar, off, p)
	default:
		for i := range p {
			p[i] = 0xff
		}
	}
}

// WriteBAR serves a guest's write.
func (f *Function) WriteBAR(bar int, off uint64, p []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	switch bar {
	case BAR0:
		f.beginAccess(off, len(p), mmio.BarrierWrite)
		f.Space.Write(uint32(off), p)
		f.Settle()
	case BAR1, BAR3:
		f.Chip.WriteBAR(bar, off, p)
	}
}

// beginAccess is called before an access of BAR0.
func (f *Function) beginAccess(off uint64, n int, b mmio.Barrier) {
	if f.Chip.InPRAMIN(off, n) {
		return
	}
	f.Windows.Access()
	if f.Space.Barrier(off, n, b) {
		f.Windows.MemoryBarrier()
	}
}

// AttachHost sets the receiver of interrupts, nil for none, and reports the state of the line to it.
func (f *Function) AttachHost(h Host) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.host = h
	f.Report()
}

// Attached reports whether there is a receiver of interrupts. Mu is held.
func (f *Function) Attached() bool { return f.host != nil }

// Report reports the state of the line, even if the host knows it. Mu is held.
func (f *Function) Report() {
	f.pin.Forget()
	f.Settle()
}

// Settle recomputes the interrupt tree, once per access or event. Memory that an interrupt announces is
// visible before the interrupt. Mu is held.
func (f *Function) Settle() {
	level, edge := f.Chip.Settle()
	if line, changed := f.pin.Settle(f.PCI, level, edge); changed && f.host != nil {
		if line.Level {
			f.Windows.MemoryBarrier()
		}
		f.host.Interrupt(line)
	}
}

// Event shows what happened outside of accesses to the guest.
func (f *Function) Event(show func()) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	show()
	f.Settle()
}
