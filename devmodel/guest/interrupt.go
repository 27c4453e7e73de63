package guest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// Event is something that the device reported, as the driver found it.
type Event struct {
	Fault *Fault
	PBDMA *PBDMAError
}

// Fault is an MMU fault.
type Fault struct {
	Unit    int
	Inst    uint64 // address of the instance block
	VA      uint64
	Reason  shadowpt.Reason
	Write   bool
	Channel int // the driver's channel of Inst, -1 for none
}

func (f Fault) String() string {
	what := "read"
	if f.Write {
		what = "write"
	}
	return fmt.Sprintf("MMU fault of unit %#x: %s of VA %#x, reason %d, instance %#x", f.Unit, what, f.VA, f.Reason, f.Inst)
}

// PBDMAError is what a PBDMA stumbled over.
type PBDMAError struct {
	Status  uint32 // bits gf100.PBDMAIntr*
	Method  uint32
	Data    uint32
	Channel int
}

// arm lets the device interrupt.
func (g *Guest) arm() {
	g.wr32(pmcIntrEn, 1)
	g.wr32(pmcIntrEn+4, 1)
}

// sleep waits for the device's interrupt and returns false when time is over.
func (g *Guest) sleep(d time.Duration) bool {
	if g.bus.sync() != nil || d <= 0 {
		return false
	}
	p := [1]unix.PollFd{{Fd: int32(g.event.FD), Events: unix.POLLIN}}
	n, _ := unix.Poll(p[:], int(d/time.Millisecond)+1)
	return n > 0 || d > time.Millisecond
}

// look serves the device's interrupt if there is one.
func (g *Guest) look() error {
	if g.event != nil && g.event.Count() == 0 {
		return g.bus.failed()
	}
	if err := g.Service(); err != nil {
		return err
	}
	if g.cfg.Interrupts == INTx {
		return g.bus.call(func(c *client.Client) error { return c.UnmaskIRQ(vfiouser.IRQINTx, 0, 1) })
	}
	return nil
}

// Events takes what the device reported since the last call.
func (g *Guest) Events() []Event {
	e := g.events
	g.events = nil
	return e
}

// Service is the interrupt handler: it silences the device, asks why, acts and
// arms it again.
func (g *Guest) Service() error {
	g.wr32(pmcIntrEn, 0)
	g.wr32(pmcIntrEn+4, 0)
	g.rd32(pmcIntrEn)
	if g.cfg.Interrupts == MSI {
		g.bus.write(bar0, pciMSIRearm, []byte{0xff})
	}
	stat := g.rd32(pmcIntr)
	g.rd32(pmcIntr + 4)
	if stat&intrPFIFOLeaf != 0 {
		if err := g.servicePFIFO(); err != nil {
			return err
		}
	}
	g.arm()
	return g.bus.sync()
}

func (g *Guest) report(e Event) { g.events = append(g.events, e) }

func (g *Guest) servicePFIFO() error {
	stat := g.rd32(pfifoIntr) & g.intrEn
	var faulted []*Channel
	if stat&intrFault != 0 {
		faulted = g.serviceFaults()
	}
	if stat&intrPBDMA != 0 {
		g.servicePBDMAs()
	}
	if stat&intrRunlist != 0 {
		g.wr32(pfifoRunlistIntr, g.rd32(pfifoRunlistIntr))
	}
	if stat&intrEngine != 0 {
		g.serviceEngines()
	}
	if rest := stat &^ (intrFault | intrPBDMA | intrRunlist | intrEngine); rest != 0 {
		g.wr32(pfifoIntr, rest)
	}
	for _, ch := range faulted {
		if err := ch.recover(); err != nil {
			return err
		}
	}
	return g.bus.failed()
}

func (g *Guest) serviceFaults() (faulted []*Channel) {
	units := g.rd32(pfifoFaultID)
	for u := range uint32(32) {
		if units>>u&1 == 0 {
			continue
		}
		base := pfifoFault + u*faultStride
		info := g.rd32(base + 12)
		f := Fault{
			Unit: int(u), Inst: uint64(g.rd32(base)) << 12,
			VA:     uint64(g.rd32(base+8))<<32 | uint64(g.rd32(base+4)),
			Reason: shadowpt.Reason(info & 0xf), Write: info>>7&1 != 0, Channel: -1,
		}
		g.wr32(pfifoFaultID, 1<<u)
		if ch := g.channelAt(f.Inst); ch != nil {
			f.Channel = ch.ID
			ch.err = &ChannelError{ch.ID, f}
			faulted = append(faulted, ch)
		}
		g.report(Event{Fault: &f})
	}
	return faulted
}

func (g *Guest) channelAt(inst uint64) *Channel {
	for _, ch := range g.channels {
		if ch.inst.Addr == inst {
			return ch
		}
	}
	return nil
}

// recover takes a channel that faulted off the GPU, and resumes the others.
func (ch *Channel) recover() error {
	g := ch.g
	g.mask(pfifoSchedDisable, 0, 1)
	g.mask(pccsrChannel+uint32(ch.ID)*chanStride, chanEnable, 0)
	ch.on = false
	if err := g.commitRunlist(); err != nil {
		return err
	}
	g.wr32(pfifoErrorClear, 1)
	g.mask(pfifoSchedDisable, 1, 0)
	return g.bus.failed()
}

func (g *Guest) servicePBDMAs() {
	units := g.rd32(pfifoPBDMAID)
	for u := range uint32(gf100.PBDMAs) {
		if units>>u&1 == 0 {
			continue
		}
		at := u * pbdmaStride
		stat := g.rd32(pbdmaIntr+at) & g.rd32(pbdmaIntrEn+at)
		addr := g.rd32(pbdmaMethod + at)
		e := PBDMAError{
			Status: stat, Method: addr & 0x3ffc,
			Data: g.rd32(pbdmaData + at), Channel: int(g.rd32(pbdmaChannel+at) & 0x7f),
		}
		g.report(Event{PBDMA: &e})
		g.wr32(pbdmaMethod+at, pbdmaSkip)
		g.wr32(pbdmaIntr+at, stat)
	}
}

func (g *Guest) serviceEngines() {
	units := g.rd32(pfifoEngEvent)
	for e := range uint32(8) {
		if units>>e&1 == 0 {
			continue
		}
		g.wr32(pfifoEngStatus+e*engStride, g.rd32(pfifoEngStatus+e*engStride))
	}
}
