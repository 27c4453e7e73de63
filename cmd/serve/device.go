// Package serve joins the parts into something that QEMU can attach to.
//
// A [Plan] is made of options, and finds everything that is wrong with them before anything starts. Its
// [Server] is a running card that answers the control API.
//
// [NewPassThrough] puts a card right behind a vfio-user socket: one guest, nothing
// in between. It is the baseline of every measurement. [NewVirtual] puts a virtual
// GPU behind a socket, whose share of a card an aggregator gives.
//
// An [Endpoint] is a device with its server and its counters. [Shared] is a card with
// any number of virtual GPUs, each at an Endpoint, which are added and removed while
// it runs. Counters are returned as the structures of package api.
//
// # Goroutines
//
// One for each Endpoint that is served; one that logs events for each Shared, and each Server with a
// whole card, until Close; one for each planted fault, until it ends; one for the control socket, and one for
// Prometheus' address, while Server.Run runs.
//
// # Locks, in the order in which they are taken
//
//  1. Server.mu: one request to add a GPU or to change the scheduler at a time; Endpoint.changing: one
//     change of a GPU; Shared.adding: one Add, or Close. What a client can stretch is waited for under
//     none of them.
//  2. Shared.mu: the list of GPUs. Never held while waiting.
//  3. Endpoint.logMu: counts that the log has; held while the log is written.
//  4. Device.mu: whether a client is attached, or may be. Held briefly.
//  5. The state of a device's interrupt: taken last, never held while waiting.
package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// function is a PCI function, whatever is behind it.
type function interface {
	ReadBAR(bar int, off uint64, p []byte)
	WriteBAR(bar int, off uint64, p []byte)
	BARSize(bar int) uint64
	ReadConfig(off uint32, p []byte)
	WriteConfig(off uint32, p []byte)
	ConfigSize() uint64
	Reset() error
	Registers() *mmio.Space
}

// Device is a PCI function as a vfio-user device. It counts traps, logs clients that attach and
// detach, and refuses clients once its GPU is being removed.
type Device struct {
	fn    function
	plug  func(*hostSide) // connects the function to a client, or disconnects it (nil)
	admit func() error    // returns why no client can be admitted

	panicked func(where string, p any)

	client *hostSide       // of the connection, or nil
	maps   mappable        // what the client may map
	shown  *aperture.Stats // of mapped windows, all clients together
	faults *card.Faults    // nil if the card does not count them
	log    *slog.Logger    // also of errors that have no place in a reply
	asked  bool            // the client's windows were opened, or could not be
	traps  traps
	watch  atomic.Pointer[watch] // nil unless a trap is more than usual

	mu       sync.Mutex // guards the fields below
	attached bool       // from the start of a client's admission
	pid      int        // of the attached client, 0 if it is not known
	user     string
	retired  bool
	clients  clientLog
}

// Registers is the function's register space, for its counters.
func (d *Device) Registers() *mmio.Space { return d.fn.Registers() }

// Shown counts the work for mapped windows.
func (d *Device) Shown() *aperture.Stats { return d.shown }

// mappable is a function that lets a client map parts of its BARs. Each client gets
// new windows, since the last client may still have the old ones mapped.
type mappable interface {
	OpenWindows() error
	CloseWindows() error
	Windows() []aperture.Region
}

// Regions implements vfiouser.Device: the BARs that have a size, and the
// configuration space. Windows are opened when a client's regions are requested, so a
// transport that describes regions once for all clients offers none.
func (d *Device) Regions() []vfiouser.Region {
	if d.client != nil && !d.asked {
		d.asked = true
		if err := d.maps.OpenWindows(); err != nil {
			d.log.Warn("no window can be mapped: every access is trapped", "error", err)
		}
	}
	r := make([]vfiouser.Region, vfiouser.NumRegions)
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	for bar := vfiouser.RegionBAR0; bar <= vfiouser.RegionBAR5; bar++ {
		if size := d.fn.BARSize(bar); size != 0 {
			r[bar] = vfiouser.Region{Size: size, Flags: rw}
		}
	}
	r[vfiouser.RegionConfig] = vfiouser.Region{Size: d.fn.ConfigSize(), Flags: rw}
	for _, w := range d.maps.Windows() {
		r[w.BAR].Flags |= vfiouser.RegionMmap
		r[w.BAR].File = w.File
		for _, a := range w.Areas {
			r[w.BAR].Areas = append(r[w.BAR].Areas, vfiouser.SparseArea{Offset: a.Offset, Size: a.Size})
		}
	}
	return r
}

// RegionSize is the size of a region, 0 if there is none.
func (d *Device) RegionSize(index int) uint64 {
	switch {
	case index == vfiouser.RegionConfig:
		return d.fn.ConfigSize()
	case index >= vfiouser.RegionBAR0 && index <= vfiouser.RegionBAR5:
		return d.fn.BARSize(index)
	}
	return 0
}

// IRQs implements vfiouser.Device: INTx and one MSI vector.
func (d *Device) IRQs() []vfiouser.IRQ {
	const message = vfiouser.IRQEventFD | vfiouser.IRQNoResize
	irqs := make([]vfiouser.IRQ, vfiouser.NumIRQs)
	irqs[vfiouser.IRQINTx] = vfiouser.IRQ{
		Count: 1, Flags: vfiouser.IRQEventFD | vfiouser.IRQMaskable | vfiouser.IRQAutomasked,
	}
	irqs[vfiouser.IRQMSI] = vfiouser.IRQ{Count: 1, Flags: message}
	irqs[vfiouser.IRQErr] = vfiouser.IRQ{Count: 1, Flags: message}
	irqs[vfiouser.IRQReq] = vfiouser.IRQ{Count: 1, Flags: message}
	return irqs
}

// ReadRegion implements vfiouser.Device.
func (d *Device) ReadRegion(index int, off uint64, p []byte) error {
	d.traps[index].reads.Add(1)
	d.traps[index].bytes.Add(uint64(len(p)))
	if w := d.watch.Load(); w != nil {
		start := time.Now()
		if w.fault.use(offBus) { // nobody answers: the bus reads as ones
			for i := range p {
				p[i] = 0xff
			}
		} else {
			d.read(index, off, p)
		}
		w.rec.Access(trace.Read, index, off, p, start)
		return nil
	}
	d.read(index, off, p)
	return nil
}

func (d *Device) read(index int, off uint64, p []byte) {
	if index == vfiouser.RegionConfig {
		d.fn.ReadConfig(uint32(off), p)
	} else {
		d.fn.ReadBAR(index, off, p)
	}
}

// WriteRegion implements vfiouser.Device.
func (d *Device) WriteRegion(index int, off uint64, p []byte) error {
	d.traps[index].writes.Add(1)
	d.traps[index].bytes.Add(uint64(len(p)))
	if w := d.watch.Load(); w != nil {
		start := time.Now()
		if !w.fault.use(offBus) {
			d.write(index, off, p)
		}
		w.rec.Access(trace.Write, index, off, p, start)
		return nil
	}
	d.write(index, off, p)
	return nil
}

func (d *Device) write(index int, off uint64, p []byte) {
	if index == vfiouser.RegionConfig {
		d.fn.WriteConfig(uint32(off), p)
	} else {
		d.fn.WriteBAR(index, off, p)
	}
}

// Reset implements vfiouser.Device.
func (d *Device) Reset() error {
	d.recorder().Note(trace.Event{Kind: trace.Reset})
	if err := d.fn.Reset(); err != nil {
		return fmt.Errorf("reset the device: %w", err)
	}
	return nil
}

// HasClient reports whether a client is attached.
func (d *Device) HasClient() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attached
}

// Retire refuses clients from now on. While a client is attached or being admitted
// it does nothing and returns false, unless it is forced.
func (d *Device) Retire(force bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retired = d.retired || force || !d.attached
	return d.retired
}

var errRetired = errors.New("the GPU is being removed")

// Admit implements vfiouser.Admitter.
func (d *Device) Admit() error {
	d.mu.Lock()
	d.attached = !d.retired
	admitted := d.attached
	d.mu.Unlock()
	if !admitted {
		return errRetired
	}
	admitted = false
	defer func() { // also after a panic
		if !admitted {
			d.Dismissed()
		}
	}()
	err := d.admit()
	admitted = err == nil
	return err
}

// Dismissed implements vfiouser.Admitter.
func (d *Device) Dismissed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached, d.pid, d.user = false, 0, ""
}

// Client is the process and the user of the attached client, 0 and "" if they are not known.
func (d *Device) Client() (pid int, user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pid, d.user
}

// Panicked implements vfiouser.PanicObserver.
func (d *Device) Panicked(where string, p any) { d.panicked(where, p) }

// IRQUnmasked implements vfiouser.IRQObserver: a level-triggered line that is
// still high has to be signalled again.
func (d *Device) IRQUnmasked(index, _ int) {
	if index == vfiouser.IRQINTx && d.client != nil {
		d.client.again()
	}
}

var (
	_ vfiouser.IRQObserver   = (*Device)(nil)
	_ vfiouser.PanicObserver = (*Device)(nil)
)

// hostSide is the client as a function sees it: changes of its memory, and its interrupt.
type hostSide struct {
	*vfiouser.Memory
	host   *vfiouser.Host
	device *Device

	mu   sync.Mutex
	line card.Line
}

// Interrupt implements card.Host.
func (h *hostSide) Interrupt(l card.Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line = l
	h.device.noteLine(l)
	switch {
	case l.MSI:
		if l.Edge {
			h.device.interrupt(h.host, vfiouser.IRQMSI)
		}
	case l.Level && !l.Disabled:
		h.device.interrupt(h.host, vfiouser.IRQINTx)
	default:
		h.host.Clear(vfiouser.IRQINTx, 0)
	}
}

// again signals an INTx pin that is still active.
func (h *hostSide) again() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line.Level && !h.line.MSI && !h.line.Disabled {
		h.host.Trigger(vfiouser.IRQINTx, 0)
	}
}

// NewPassThrough returns card c as a device. The card stays the caller's. Its memory
// is kept for the next client, who is refused while the last one could still reach it.
func NewPassThrough(c passthrough.Card, cfg passthrough.Config) *Device {
	f := passthrough.New(c, cfg)
	d := &Device{fn: f, maps: f, shown: f.Stats(), log: slog.New(slog.DiscardHandler), admit: f.CloseWindows, panicked: func(string, any) {}}
	if s, ok := c.(interface{ Stats() *soft.Stats }); ok {
		d.faults = &s.Stats().Faults
	}
	d.plug = func(h *hostSide) {
		if h == nil {
			f.DetachHost()
			return
		}
		d.pushDMA(f)
		f.AttachHost(h)
	}
	return d
}

// pushDMA maps and unmaps the client's memory at the function, from now on. Memory that has no
// descriptor, or that devices may not read, is out of its reach: a card needs bytes that it and the
// guest change at once.
func (d *Device) pushDMA(to card.DMA) {
	d.client.Watch(func(c vfiouser.MemoryChange) {
		switch {
		case !c.Mapped || !c.Read:
		case c.Removed:
			to.UnmapDMA(c.Span.Addr, c.Span.Size) // the rest of its notices find nothing
		default:
			if err := to.MapDMA(c.Addr, card.Mapping{Mem: c.Bytes, Write: c.Write, Wrote: c.Wrote, Populate: c.Populate, File: c.File, Off: c.Off}); err != nil {
				d.log.Warn("the device cannot reach memory of the client", "error", err)
			}
		}
	})
}
