package gsp

import (
	"fmt"

	"github.com/umbra-gpu/umbra/mmio/gh100"
)

// Engine is one that channels run on.
type Engine struct {
	Type      uint32 // its number in calls
	Runlist   uint32
	interrupt uint32 // its number in the table of vectors
}

// Engines are those of a card. The vector of engine i is [gh100.EngineVector] of i. COPY0 shares the
// runlist of the graphics engine, since drivers copy on their graphics channels; COPY1 is alone.
var Engines = []Engine{
	engineGraphics: {1, 0, 84},
	{9, 0, 15},     // COPY0
	{10, 1, 16},    // COPY1
}

const (
	engineGraphics = 0
	interruptGSP   = 50         // GSP's number in the table of vectors
	noVector       = 0xffffffff // an interrupt that is never raised
	runlistBase    = 0xb80000   // the registers of a runlist, which only tell runlists apart
	runlistSize    = 0x8000
)

// engineOf returns the index of an engine by its number in calls, -1 if there is none.
func engineOf(number uint32) int {
	for i := range Engines {
		if Engines[i].Type == number {
			return i
		}
	}
	return -1
}

const (
	// Reserved is the size of GSP's part of VRAM, after the driver's.
	Reserved = 16 << 20
	// usableUnit is what the driver's part must be a multiple of. The rest of these 4 GiB a driver would
	// save in RAM, at a power-off, too.
	usableUnit = 4 << 30

	heapFromEnd = 8 << 20
	frtsFromEnd = 2 << 20
)

// CheckVRAM returns an error if a card cannot have so much memory.
func CheckVRAM(size uint64) error {
	if size < usableUnit || size%usableUnit != Reserved {
		return fmt.Errorf("gsp: VRAM of %d MiB: want a multiple of 4096 MiB and %d MiB", size>>20, Reserved>>20)
	}
	return nil
}

// BAR1Root and BAR2Root are where the page directories of the windows lie in so much VRAM. The driver
// writes entries into that of BAR1; that of BAR2 is GSP's, see [Host.SetBAR2].
func BAR1Root(vram uint64) uint64 { return vram - Reserved }
func BAR2Root(vram uint64) uint64 { return vram - Reserved + pageSize }

// internalObjects are of GSP's own client, on which the driver calls controls of the whole card.
var internalObjects = []Object{
	{Client: 0xc1e00000, Handle: 0xc1e00000, Parent: 0xc1e00000, Class: clRoot},
	{Client: 0xc1e00000, Handle: 0xde1e0000, Parent: 0xc1e00000, Class: clDevice},
	{Client: 0xc1e00000, Handle: 0x5d1e0000, Parent: 0xde1e0000, Class: clSubdevice},
}

// staticInfo answers GET_GSP_STATIC_INFO.
func (g *GSP) staticInfo(p []byte) uint32 {
	a, usable := g.abi, g.cfg.VRAM-Reserved
	clear(p)
	a.staticRegions.put(p, 2)
	a.staticLimit.putItem(p, 0, usable-1)
	a.staticCompressed.putItem(p, 0, 1)
	a.staticISO.putItem(p, 0, 1)
	a.staticBase.putItem(p, 1, usable)
	a.staticLimit.putItem(p, 1, g.cfg.VRAM-1)
	a.staticReserved.putItem(p, 1, Reserved)
	a.staticBAR1.put(p, BAR1Root(g.cfg.VRAM))
	a.staticBAR2.put(p, BAR2Root(g.cfg.VRAM))
	for i, m := range []place{a.staticClient, a.staticDevice, a.staticSubdevice} {
		m.put(p, uint64(internalObjects[i].Handle))
	}
	a.staticHeap.put(p, g.cfg.VRAM-heapFromEnd)
	a.staticFRTS.put(p, g.cfg.VRAM-frtsFromEnd)
	return ok
}

// tpcs answers which units a cluster has.
func (g *GSP) tpcs(_ *node, p []byte) uint32 {
	i := g.abi.tpcsGPC.get(p)
	if i >= uint64(len(g.cfg.TPCs)) {
		return invalidArgument
	}
	g.abi.tpcsMask.put(p, 1<<g.cfg.TPCs[i]-1)
	return ok
}

// contexts answers how large the parts of a channel's context are. Drivers take one without a size for an error. They allocate
// all, but programs give only the one of culling to the card.
func (g *GSP) contexts(_ *node, p []byte) uint32 {
	const culling = 8 // NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_ENGINE_ID_GRAPHICS_ZCULL
	for i := range maxContexts {
		g.abi.contextsBytes.putItem(p, i, pageSize)
		g.abi.contextsAlign.putItem(p, i, pageSize)
	}
	g.abi.contextsBytes.putItem(p, culling, uint64(max(pageSize, g.cfg.Culling.Context)))
	return ok
}

// culling answers what culling by depth needs. Where nothing is drawn it says something, since programs divide by the
// values. Mesa aborts on more than 16 subregions.
func (g *GSP) culling(_ *node, p []byte) uint32 {
	for i, w := range g.cfg.Culling.Words {
		if g.cfg.Culling.Context == 0 {
			w = 16
		}
		g.abi.zcullWord.putItem(p, i, uint64(w))
	}
	return ok
}

// vectors answers which interrupts there are: GSP's events, and the engines' completions.
func (g *GSP) vectors(_ *node, p []byte) uint32 {
	a := g.abi
	clear(p)
	put := func(i int, engine, stall, nonStall uint32) {
		a.vectorsEngine.putItem(p, i, uint64(engine))
		a.vectorsStall.putItem(p, i, uint64(stall))
		a.vectorsNonStall.putItem(p, i, uint64(nonStall))
	}
	put(0, interruptGSP, gh100.VectorGSP, noVector)
	for i, e := range Engines {
		put(i+1, e.interrupt, noVector, gh100.EngineVector(i))
	}
	a.vectorsCount.put(p, uint64(len(Engines)+1))
	return ok
}

func (g *GSP) engines(_ *node, p []byte) uint32 {
	a := g.abi
	clear(p)
	for i, e := range Engines {
		a.enginesDesc.putItem(p, i, uint64(i+1))
		a.enginesType.putItem(p, i, uint64(e.Type))
		a.enginesRunlist.putItem(p, i, uint64(e.Runlist))
		a.enginesBase.putItem(p, i, runlistBase+runlistSize*uint64(e.Runlist))
	}
	a.enginesCount.put(p, uint64(len(Engines)))
	return ok
}
