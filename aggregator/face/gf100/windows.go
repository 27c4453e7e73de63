package gf100

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/window"
	device "github.com/umbra-gpu/umbra/devmodel/gf100"
	chip "github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// WindowsState is what the registers of windows say.
type WindowsState struct {
	Block  [device.PRAMIN]uint64 // of the instance blocks of BAR1 and BAR3
	PRAMIN uint32                // NV_PBUS_BAR0_WINDOW
}

// barOf are the BARs of windows, and their clients of the MMU.
var barOf = [device.PRAMIN]struct {
	bar int
	chip.MMUClient
}{device.WindowBAR1: {card.BAR1, chip.ClientBAR1}, device.WindowBAR3: {card.BAR3, chip.ClientBAR3}}

// settings are what a write of a register does.
var settings = [device.Settings]func(f *Face, v uint32){
	device.BAR1Block:  func(f *Face, v uint32) { f.setBlock(device.WindowBAR1, v) },
	device.BAR3Block:  func(f *Face, v uint32) { f.setBlock(device.WindowBAR3, v) },
	device.PRAMINBase: (*Face).setPRAMIN,
	device.PollBase:   func(f *Face, v uint32) { f.guest.PollArea(chip.PollArea(v), chip.PollSize) },
	device.MayRun:     (*Face).setMayRun,
}

// Set implements device.Card.
func (f *Face) Set(s device.Setting, v uint32) { settings[s](f, v) }

func (f *Face) setBlock(w device.Window, v uint32) {
	inst, virtual := chip.BlockMemory(v)
	f.state.Windows.Block[w] = inst
	var space *shadowpt.Space
	block := make([]byte, chip.InstanceSize)
	if virtual && f.guest.Memory().Read(shadowpt.VRAM, inst, block) {
		s := structs.ReadSpace(block)
		space = &s
	}
	f.guest.ShowBAR(barOf[w].bar, virtual, space)
}

func (f *Face) setPRAMIN(v uint32) {
	f.state.Windows.PRAMIN = v
	f.guest.PointPRAMIN(f.state.Windows.at(0))
}

// at returns where off of the PRAMIN window lies.
func (s *WindowsState) at(off uint64) (shadowpt.Target, uint64) {
	target, addr := chip.PRAMINMemory(s.PRAMIN)
	return shadowpt.Target(target), addr + off
}

// Read implements device.Card.
func (f *Face) Read(w device.Window, off uint64, p []byte) (fault chip.MMUFault, ok bool) {
	if w == device.PRAMIN {
		t, addr := f.state.Windows.at(off)
		f.guest.ReadAt(t, addr, p)
		return fault, true
	}
	x, ok := f.guest.ReadBAR(barOf[w].bar, off, p)
	return f.fault(w, x, ok)
}

// Write implements device.Card.
func (f *Face) Write(w device.Window, off uint64, p []byte) (fault chip.MMUFault, ok bool) {
	if w == device.PRAMIN {
		t, addr := f.state.Windows.at(off)
		f.guest.WriteAt(t, addr, p)
		return fault, true
	}
	x, ok := f.guest.WriteBAR(barOf[w].bar, off, p)
	return f.fault(w, x, ok)
}

func (f *Face) fault(w device.Window, x window.Fault, ok bool) (chip.MMUFault, bool) {
	if ok {
		return chip.MMUFault{}, true
	}
	return barOf[w].Fault(f.state.Windows.Block[w], x.VA, x.Write, uint8(x.Reason)), false
}
