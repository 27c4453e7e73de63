package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

const (
	bar0   = 0
	bar1   = 1
	bar3   = 3
	config = vfiouser.RegionConfig
)

// Interrupts is the kind of interrupt that the guest uses.
type Interrupts int

const (
	MSI  Interrupts = iota
	INTx            // level triggered, masked by the server until the guest is done
	None            // the driver polls NV_PMC_INTR
)

// Config of a guest. The zero value is good.
type Config struct {
	RAM        uint64        // bytes; 0 means 16 MiB
	RAMBase    uint64        // its bus address
	RAMPiece   uint64        // bytes of one DMA mapping; 0 maps it in one piece
	Access     Access        // how writes are sent
	Width      int           // widest access to memory, 4 or 8 bytes; 0 means 8
	Interrupts Interrupts    // kind of interrupt
	Map        bool          // map what the device offers of its BARs, as QEMU does; writes wait for their replies then
	PRAMIN     bool          // reach memory through PRAMIN alone: slow, and a check on the BARs
	Timeout    time.Duration // for everything that is waited for; 0 means a minute
	Client     client.Options
}

func (c Config) withDefaults() Config {
	c.RAM = pages(cmp.Or(c.RAM, 16<<20))
	c.RAMPiece = pages(cmp.Or(c.RAMPiece, c.RAM))
	c.Width = cmp.Or(c.Width, 8)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	return c
}

// Guest is a machine with the GPU and a driver. The package comment has the rules for its
// use by goroutines.
type Guest struct {
	cfg    Config
	client *client.Client
	bus    *bus
	mem    *client.Memory
	event  *client.EventFD
	bars   [6]uint64

	msiCap     uint64 // offset of the MSI capability
	vramSize   uint64
	vram       *heap
	ramHeap    *heap
	win1, win3 *window
	userd      *Buffer
	fences     *Buffer
	runlists   [2]*Buffer
	runlist    int // the one in use
	channels   map[int]*Channel
	events     []Event
	intrEn     uint32       // of PFIFO
	start      func() error // the driver, from a reset on
}

// Attach connects to the server at path, as QEMU does when a machine starts:
// negotiation, device description, DMA map, reset; then the driver brings the
// GPU up.
func Attach(ctx context.Context, path string, cfg Config) (*Guest, error) {
	return attach(ctx, path, cfg, (*Guest).BringUp)
}

// Plug is Attach for a driver of another chip, which reaches the GPU by ReadBAR and WriteBAR. Of what the
// Guest does itself, it has the configuration space, resets, RAM and Raw.
func Plug(ctx context.Context, path string, cfg Config) (*Guest, error) {
	return attach(ctx, path, cfg, (*Guest).enablePCI)
}

func attach(ctx context.Context, path string, cfg Config, start func(*Guest) error) (*Guest, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Map {
		cfg.Access = Replied
	}
	if d, ok := ctx.Deadline(); ok {
		cfg.Timeout = min(cfg.Timeout, time.Until(d))
	}
	c, err := client.Dial(path, &cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("guest: attach to %s: %w", path, err)
	}
	g := &Guest{cfg: cfg, client: c, bus: newBus(c, &cfg)}
	g.start = func() error { return start(g) }
	if err := errors.Join(g.plugIn(), g.start()); err != nil {
		return nil, errors.Join(fmt.Errorf("guest: attach to %s: %w", path, err), g.Close())
	}
	return g, nil
}

// plugIn does QEMU's part.
func (g *Guest) plugIn() error {
	info, err := g.client.Info()
	if err != nil {
		return err
	}
	if info.NumRegions <= config || info.NumIRQs <= vfiouser.IRQMSI {
		return fmt.Errorf("a device of %d regions and %d interrupts is no PCI function", info.NumRegions, info.NumIRQs)
	}
	for i := range g.bars {
		r, err := g.client.RegionInfo(i)
		if err != nil {
			return err
		}
		g.bars[i] = r.Size
		if err := g.mapBAR(&r); err != nil {
			return err
		}
	}
	if g.mem, err = client.Alloc(int(g.cfg.RAM)); err != nil {
		return err
	}
	for off := uint64(0); off < g.cfg.RAM; off += g.cfg.RAMPiece {
		n := min(g.cfg.RAMPiece, g.cfg.RAM-off)
		if err := g.client.Map(g.cfg.RAMBase+off, g.mem, off, n, client.ReadWrite); err != nil {
			return fmt.Errorf("map %d KiB of RAM: %w", n>>10, err)
		}
	}
	if err := g.client.Reset(); err != nil {
		return err
	}
	return g.wireInterrupt()
}

// mapBAR maps the device's mappable parts of a BAR, if configured.
func (g *Guest) mapBAR(r *client.RegionInfo) error {
	if r.File == nil {
		return nil
	}
	defer r.File.Close()
	if !g.cfg.Map {
		return nil
	}
	for _, a := range r.Areas {
		mem, err := r.Mmap(a)
		if err != nil {
			return fmt.Errorf("map BAR%d at %#x: %w", r.Index, a.Offset, err)
		}
		g.bus.mapped = append(g.bus.mapped, mapping{int(r.Index), a.Offset, mem})
	}
	return nil
}

// Mapped is the guest's mapping of a BAR from off to its end, or nil.
func (g *Guest) Mapped(bar int, off uint64) []byte { return g.bus.direct(bar, off, 1) }

func (g *Guest) wireInterrupt() error {
	index := vfiouser.IRQMSI
	switch g.cfg.Interrupts {
	case None:
		return nil
	case INTx:
		index = vfiouser.IRQINTx
	}
	es, err := g.client.AttachIRQs(index, 0, 1)
	if len(es) > 0 {
		g.event = es[0]
	}
	return err
}

// Close pulls the machine out, as QEMU's death does: nothing is shut down.
func (g *Guest) Close() error {
	errs := []error{g.client.Close(), g.bus.unmap()}
	if g.event != nil {
		errs = append(errs, g.event.Close())
	}
	if g.mem != nil {
		errs = append(errs, g.mem.Close())
	}
	g.event, g.mem = nil, nil
	return errors.Join(errs...)
}

// Reset resets the device and brings it up again, as a reboot does. Everything made before
// is invalid.
func (g *Guest) Reset() error {
	if err := g.ResetOnly(); err != nil {
		return err
	}
	return g.start()
}

// ResetOnly resets the device and leaves it.
func (g *Guest) ResetOnly() error {
	return g.bus.call(func(c *client.Client) error {
		if err := c.Reset(); err != nil || g.cfg.Interrupts != INTx {
			return err
		}
		// QEMU unmasks a masked pin around a reset.
		g.event.Count()
		return c.UnmaskIRQ(vfiouser.IRQINTx, 0, 1)
	})
}

// ReadBAR and WriteBAR access a BAR, by the first of its registers. After a failure of the connection,
// reads return ones.
func (g *Guest) ReadBAR(bar int, off uint64, p []byte) { g.bus.read(bar, off, p) }

func (g *Guest) WriteBAR(bar int, off uint64, p []byte) {
	g.bus.write(bar, off, p)
	_ = g.bus.sync() // which fails again at the next access
}

// Sync sends every write that is still collected.
func (g *Guest) Sync() error { return g.bus.sync() }

// Memory is the guest's RAM: byte 0 is bus address Config.RAMBase.
func (g *Guest) Memory() *client.Memory { return g.mem }

// RAMBase is the bus address of the guest's RAM.
func (g *Guest) RAMBase() uint64 { return g.cfg.RAMBase }

// VRAM returns the size of the card's memory in bytes, from its registers.
func (g *Guest) VRAM() uint64 { return g.vramSize }

func (g *Guest) rd32(reg uint32) uint32 {
	var b [4]byte
	g.bus.read(bar0, uint64(reg), b[:])
	return le.Uint32(b[:])
}

func (g *Guest) wr32(reg, v uint32) {
	g.bus.write(bar0, uint64(reg), le.AppendUint32(nil, v))
}

func (g *Guest) mask(reg, clear, set uint32) { g.wr32(reg, g.rd32(reg)&^clear|set) }

// poll waits until reg & mask is want.
func (g *Guest) poll(what string, reg, mask, want uint32) error {
	return g.pollFor(what, reg, func(v uint32) bool { return v&mask == want })
}

func (g *Guest) pollFor(what string, reg uint32, ok func(uint32) bool) error {
	var p pause
	p.start(g.cfg.Timeout)
	for {
		v := g.rd32(reg)
		if err := g.bus.failed(); err != nil {
			return err
		}
		if ok(v) {
			return nil
		}
		if !p.next() {
			return fmt.Errorf("guest: %s: register %06x still reads %08x after %v", what, reg, v, g.cfg.Timeout)
		}
	}
}

// pause is the growing interval between polls, zero at first.
type pause struct {
	end   time.Time
	looks int
}

func (p *pause) start(d time.Duration) { p.end = time.Now().Add(d) }

// next waits for the next look and returns false if time is over.
func (p *pause) next() bool {
	if time.Now().After(p.end) {
		return false
	}
	if p.looks++; p.looks > 4 {
		time.Sleep(min(time.Duration(p.looks)*10*time.Microsecond, time.Millisecond))
	}
	return true
}

// cfgRead reads n bytes of the configuration space.
func (g *Guest) cfgRead(off uint64, n int) uint32 {
	var b [4]byte
	g.bus.read(config, off, b[:n])
	return le.Uint32(b[:])
}

func (g *Guest) cfgWrite(off uint64, v uint32, n int) {
	g.bus.write(config, off, le.AppendUint32(nil, v)[:n])
}

func (g *Guest) command(v uint32) { g.cfgWrite(pciCommand, v, 2) }
