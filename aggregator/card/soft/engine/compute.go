package engine

import (
	"errors"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
)

// Compute is the state of class 90c0 that its methods do not keep as their last data: what was
// bound, and tables.
type Compute struct {
	Constants         [sm.ConstantBanks]sm.Constants
	Headers, Samplers [sm.TextureSlots]sm.Slot
	// Global is the last data of LOAD_GA_TO_VA_MAPPING_ENTRY by entry: what each 4 GiB of global
	// addresses are, if SET_GA_TO_VA_MAPPING_MODE is on.
	Global [256]uint32
	// Launch is the last one.
	Launch sm.Launch
}

// bindConstants binds the selected constant buffer.
func bindConstants(g *GR, _ *Env, c call) Outcome {
	v := &g.Values[c.class.place]
	g.Compute.Constants[c.data>>8&0x1f] = sm.Constants{
		Range: sm.Range{Address: address(v[constUpper], v[constLower]), Size: uint64(v[constSize])},
		Bound: c.data&1 != 0,
	}
	return Done
}

func bindHeader(g *GR, _ *Env, c call) Outcome {
	g.Compute.Headers[c.data>>1&0xff] = sm.Slot{Index: c.data >> 9, Bound: c.data&1 != 0}
	return Done
}

func bindSampler(g *GR, _ *Env, c call) Outcome {
	g.Compute.Samplers[c.data>>4&0xff] = sm.Slot{Index: c.data >> 12, Bound: c.data&1 != 0}
	return Done
}

func unbindAll(g *GR, _ *Env, c call) Outcome {
	p := &g.Compute
	if c.data&(1<<0) != 0 {
		clear(p.Headers[:])
	}
	if c.data&(1<<4) != 0 {
		clear(p.Samplers[:])
	}
	if c.data&(1<<8) != 0 {
		clear(p.Constants[:])
	}
	return Done
}

func mapGlobal(g *GR, _ *Env, c call) Outcome {
	g.Compute.Global[c.data>>16&0xff] = c.data
	return Done
}

var errGlobalMap = errors.New("not implemented: a map of global addresses (LOAD_GA_TO_VA_MAPPING_ENTRY) other than to themselves, readable and writable")

// mapsToItself reports whether every entry maps its addresses to themselves, to be read and written.
func (p *Compute) mapsToItself() bool {
	const readWrite = 1<<30 | 1<<31
	for i, entry := range p.Global {
		if entry != uint32(readWrite|i<<16|i) {
			return false
		}
	}
	return true
}

// Methods that a launch reads, as places in GR.Values.
const (
	cpLocalLow      = 0x204 / 4
	cpLocalHigh     = 0x208 / 4
	cpSharedWindow  = 0x214 / 4
	cpGridXY        = 0x238 / 4
	cpGridZ         = 0x23c / 4
	cpShared        = 0x24c / 4
	cpThreads       = 0x250 / 4
	cpBarriers      = 0x254 / 4
	cpRegisters     = 0x2c0 / 4
	cpMapping       = 0x2c4 / 4
	cpBlockXY       = 0x3ac / 4
	cpBlockZ        = 0x3b0 / 4
	cpStart         = 0x3b4 / 4
	cpLocalWindow   = 0x77c / 4
	cpGridParam     = 0x780 / 4
	cpLocal         = 0x790 / 4 // address, then size
	cpLinked        = 0x1234 / 4
	cpSamplerPool   = 0x155c / 4 // address, then the last index
	cpHeaderPool    = 0x1574 / 4
	cpRegion        = 0x1608 / 4
	cpCubeSeams     = 0x1664 / 4
	cpSurfaces      = 0x2700 / 4
	cpSurfaceStride = 0x20 / 4
)

// cubeAutoSpan and greater values of SET_CUBEMAP_INTER_FACE_FILTERING filter across edges.
const cubeAutoSpan = 2

// newLaunch describes the launch that the state asks for.
func (g *GR) newLaunch(v *[methodSlots]uint32, param uint32) sm.Launch {
	at := func(m int) uint64 { return address(v[m], v[m+1]) }
	l := sm.Launch{
		Region: at(cpRegion), Grid: dimensions(v[cpGridXY], v[cpGridZ]), Block: dimensions(v[cpBlockXY], v[cpBlockZ]),
		ID: v[cpGridParam], Param: param,
		Registers: v[cpRegisters], Barriers: v[cpBarriers],
		Shared: v[cpShared], LocalLow: v[cpLocalLow], LocalHigh: v[cpLocalHigh],
		SharedWindow: uint64(v[cpSharedWindow]), LocalWindow: uint64(v[cpLocalWindow]),
		Local:     sm.Range{Address: at(cpLocal), Size: uint64(v[cpLocal+2])<<32 | uint64(v[cpLocal+3])},
		Constants: g.Compute.Constants,
		Textures: sm.Textures{
			Headers:     sm.Pool{Address: at(cpHeaderPool), Last: v[cpHeaderPool+2]},
			Samplers:    sm.Pool{Address: at(cpSamplerPool), Last: v[cpSamplerPool+2]},
			HeaderSlots: g.Compute.Headers, SamplerSlots: g.Compute.Samplers, Linked: v[cpLinked] != 0, Seamless: v[cpCubeSeams] >= cubeAutoSpan,
		},
	}
	l.Program = (l.Region + uint64(v[cpStart])) & vaMask
	for i := range l.Surfaces {
		s := v[cpSurfaces+i*cpSurfaceStride:]
		l.Surfaces[i] = sm.Surface{
			Address: address(s[0], s[1]), Width: s[2], Height: s[3] & 0x1ffff, Linear: s[3]>>20&1 != 0,
			Zeta: s[4]&1 != 0, Format: uint8(s[4] >> 4),
			Log2Block: [2]uint8{uint8(s[5] & 0xf), uint8(s[5] >> 4 & 0xf)},
		}
	}
	return l
}

func dimensions(xy, z uint32) [3]uint32 { return [3]uint32{xy & 0xffff, xy >> 16, z} }

// launch checks a launch and starts it.
func launch(g *GR, env *Env, c call) Outcome {
	if g.skipped(c.class) {
		return Done
	}
	v := &g.Values[c.class.place]
	l := &g.Compute.Launch
	*l = g.newLaunch(v, c.data)
	if why := launchRefusal(l, v[cpThreads]); why != 0 {
		return g.refuse(env, c.class.place, Refusal{c.class.ID, why, c.method, c.data})
	}
	if v[cpMapping] != 0 && !g.Compute.mapsToItself() {
		return g.refuseProgram(env, c.class.ID, c.class.place, errGlobalMap)
	}
	if env.Launched != nil {
		env.Launched(l)
	}
	return g.startGrid(env, c)
}

// Limits of a GF100's processor.
const (
	maxBlock     = 1024
	maxBlockZ    = 64
	maxRegisters = 63
	registerFile = 32768
	maxShared    = 48 << 10
	maxLocal     = 512 << 10
)

// launchRefusal says why the processor cannot take a launch, 0 if it can.
func launchRefusal(l *sm.Launch, threads uint32) Reason {
	size := uint64(l.Block[0]) * uint64(l.Block[1]) * uint64(l.Block[2])
	warps := (size + 31) / 32
	local := uint64(l.LocalLow) + uint64(l.LocalHigh)
	switch {
	case size != uint64(threads):
		return BlockMismatch
	case size == 0 || size > maxBlock || l.Block[2] > maxBlockZ:
		return NoWarps
	case l.Registers > maxRegisters || warps*32*uint64(l.Registers) > registerFile:
		return NoRegisters
	case local > maxLocal || localSize(l) > l.Local.Size:
		return NoLocal
	case l.Shared > maxShared:
		return NoShared
	}
	return 0
}
