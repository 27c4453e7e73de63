package gf100

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/window"
	"github.com/umbra-gpu/umbra/devmodel"
	chip "github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Windows are the guest's views of its memory.
type Windows interface {
	ShowBAR(bar int, virtual bool, s *shadowpt.Space)
	ReadBAR(bar int, off uint64, p []byte) (window.Fault, bool)
	WriteBAR(bar int, off uint64, p []byte) (window.Fault, bool)
	ReadAt(t shadowpt.Target, addr uint64, p []byte)
	WriteAt(t shadowpt.Target, addr uint64, p []byte)
	PointPRAMIN(t shadowpt.Target, addr uint64)
	PollArea(off, n uint64)
	MemoryBarrier()
	Access()
	Shown() bool
}

// WindowsState is what the registers of windows say.
type WindowsState struct {
	Block  [devmodel.PRAMIN]uint64 // of the instance blocks of BAR1 and BAR3
	PRAMIN uint32                  // NV_PBUS_BAR0_WINDOW
}

// barOf are the BARs of windows, and their clients of the MMU.
var barOf = [devmodel.PRAMIN]struct {
	bar int
	chip.MMUClient
}{devmodel.WindowBAR1: {card.BAR1, chip.ClientBAR1}, devmodel.WindowBAR3: {card.BAR3, chip.ClientBAR3}}

// settings are what a write of a register does.
var settings = [devmodel.Settings]func(f *Face, v uint32){
	devmodel.BAR1Block:  func(f *Face, v uint32) { f.setBlock(devmodel.WindowBAR1, v) },
	devmodel.BAR3Block:  func(f *Face, v uint32) { f.setBlock(devmodel.WindowBAR3, v) },
	devmodel.PRAMINBase: (*Face).setPRAMIN,
	devmodel.PollBase:   func(f *Face, v uint32) { f.guest.PollArea(chip.PollArea(v), chip.PollSize) },
	devmodel.MayRun:     (*Face).setMayRun,
}

// Set implements devmodel.Card.
func (f *Face) Set(s devmodel.Setting, v uint32) { settings[s](f, v) }

func (f *Face) setBlock(w devmodel.Window, v uint32) {
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

// Read implements devmodel.Card.
func (f *Face) Read(w devmodel.Window, off uint64, p []byte) (fault chip.MMUFault, ok bool) {
	if w == devmodel.PRAMIN {
		t, addr := f.state.Windows.at(off)
		f.guest.ReadAt(t, addr, p)
		return fault, true
	}
	x, ok := f.guest.ReadBAR(barOf[w].bar, off, p)
	return f.fault(w, x, ok)
}

// Write implements devmodel.Card.
func (f *Face) Write(w devmodel.Window, off uint64, p []byte) (fault chip.MMUFault, ok bool) {
	if w == devmodel.PRAMIN {
		t, addr := f.state.Windows.at(off)
		f.guest.WriteAt(t, addr, p)
		return fault, true
	}
	x, ok := f.guest.WriteBAR(barOf[w].bar, off, p)
	return f.fault(w, x, ok)
}

func (f *Face) fault(w devmodel.Window, x window.Fault, ok bool) (chip.MMUFault, bool) {
	if ok {
		return chip.MMUFault{}, true
	}
	return barOf[w].Fault(f.state.Windows.Block[w], x.VA, x.Write, uint8(x.Reason)), false
}
