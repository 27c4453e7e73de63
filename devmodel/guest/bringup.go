package guest

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// What nouveau leaves alone at both ends of VRAM.
const (
	vramLow  = 256 << 10
	vramHigh = 1 << 20
)

// BringUp initialises the GPU from reset, in the order of nouveau's probe.
func (g *Guest) BringUp() error {
	g.forget()
	for _, step := range []func() error{
		g.enablePCI, g.identify, g.preinit, g.measure, g.openWindows, g.startFIFO,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	g.arm()
	return g.bus.sync()
}

// forget drops all state of the driver, as the card has dropped its own.
func (g *Guest) forget() {
	g.win1, g.win3 = nil, nil
	g.channels = map[int]*Channel{}
	g.events = nil
	g.runlists = [2]*Buffer{}
	g.ramHeap = newHeap(0, g.cfg.RAM)
	if g.event != nil {
		g.event.Count()
	}
}

func (g *Guest) enablePCI() error {
	if id := g.cfgRead(0, 4); id&0xffff != gf100.VendorID {
		return errors.Join(fmt.Errorf("guest: PCI id %08x is no NVIDIA function", id), g.bus.failed())
	}
	g.command(pciMemory | pciMaster)
	g.msiCap = g.capability(pciCapMSI)
	if g.cfg.Interrupts != MSI {
		return nil
	}
	if g.msiCap == 0 {
		return errors.New("guest: the function has no MSI capability")
	}
	g.cfgWrite(g.msiCap+msiAddressLo, 0xfee00000, 4)
	g.cfgWrite(g.msiCap+msiAddressHi, 0, 4)
	g.cfgWrite(g.msiCap+msiData, 0x40, 2)
	g.cfgWrite(g.msiCap+msiControl, g.cfgRead(g.msiCap+msiControl, 2)|msiEnable, 2)
	return nil
}

// capability finds a PCI capability; the list is bounded by what fits the space.
func (g *Guest) capability(id uint32) uint64 {
	at := g.cfgRead(pciCapList, 1)
	for range 48 {
		if at < 0x40 {
			return 0
		}
		if g.cfgRead(uint64(at), 1) == id {
			return uint64(at)
		}
		at = g.cfgRead(uint64(at)+1, 1)
	}
	return 0
}

func (g *Guest) identify() error {
	boot := g.rd32(pmcBoot0)
	if boot>>20&0x1ff != chipGF100 {
		return errors.Join(fmt.Errorf("guest: NV_PMC_BOOT_0 reads %08x: not a GF100", boot), g.bus.failed())
	}
	return nil
}

func (g *Guest) preinit() error {
	g.wr32(pmcIntrEn, 0)
	g.wr32(pmcIntrEn+4, 0)
	g.wr32(pmcEnable, 0xffffffff)
	g.wr32(pmcIntrMask, intrMaskOfDrv)
	g.wr32(pmcIntrMask+4, 0)
	return nil
}

// measure asks how much VRAM there is.
func (g *Guest) measure() error {
	parts, off := g.rd32(pibusPartCount), g.rd32(pibusPartMask)
	if parts == 0 || parts > partitionLimit {
		return fmt.Errorf("guest: %d framebuffer partitions", parts)
	}
	g.vramSize = 0
	for i := range parts {
		if off>>i&1 == 0 {
			g.vramSize += uint64(g.rd32(partMemory+i*partStride)) << 20
		}
	}
	if g.vramSize <= vramLow+vramHigh {
		return fmt.Errorf("guest: %d bytes of VRAM", g.vramSize)
	}
	g.vram = newHeap(vramLow, g.vramSize-vramLow-vramHigh)
	return g.bus.failed()
}

// openWindows builds BAR3's tables through PRAMIN, then BAR1's through BAR3.
func (g *Guest) openWindows() error {
	w3, err := g.newWindow(g.bars[bar3], pbusBAR3Block)
	if err != nil {
		return fmt.Errorf("BAR3: %w", err)
	}
	g.win3 = w3
	w1, err := g.newWindow(g.bars[bar1], pbusBAR1Block)
	if err != nil {
		return fmt.Errorf("BAR1: %w", err)
	}
	g.win1 = w1
	return nil
}

// pbdmasOf gives each engine its PBDMA, as nouveau does with three of them.
var pbdmasOf = [...]uint32{^uint32(1), ^uint32(2), ^uint32(2), ^uint32(2), ^uint32(4), ^uint32(2)}

func (g *Guest) startFIFO() error {
	g.wr32(pmcPBDMAs, 0xffffffff)
	pbdmas := g.rd32(pmcPBDMAs)
	for i, m := range pbdmasOf {
		g.wr32(pfifoPBDMAMap+uint32(i)*4, m)
	}
	for i := range uint32(gf100.PBDMAs) {
		if pbdmas>>i&1 == 0 {
			continue
		}
		g.mask(pbdmaIntrStall+i*pbdmaStride, 0x10000100, 0)
		g.wr32(pbdmaIntr+i*pbdmaStride, 0xffffffff)
		g.wr32(pbdmaIntrEn+i*pbdmaStride, 0xfffffeff)
	}
	g.mask(pfifoEnable, 0, 1)
	if err := g.allocUSERD(); err != nil {
		return err
	}
	g.wr32(pfifoIntr, 0xffffffff)
	g.setIntr(0x7fffffff)
	g.wr32(pfifoEngEventEn, 1)
	for i := range g.runlists {
		var err error
		if g.runlists[i], err = g.newInstance(gf100.Channels * gf100.RunlistEntrySize); err != nil {
			return err
		}
	}
	return g.bus.failed()
}

// allocUSERD makes the poll area, at the beginning of BAR1, and the page of fences.
func (g *Guest) allocUSERD() (err error) {
	if g.userd, err = g.allocVRAM(gf100.Channels*gf100.USERDSize, pageSize, true); err != nil {
		return err
	}
	at, err := g.userd.BAR1()
	if err != nil {
		return err
	}
	g.wr32(pfifoUSERDBase, userdValid|uint32(at>>12))
	g.fences, err = g.allocVRAM(gf100.Channels*fenceSize, pageSize, false)
	return err
}

func (g *Guest) setIntr(v uint32) {
	g.intrEn = v
	g.wr32(pfifoIntrEn, v)
}
