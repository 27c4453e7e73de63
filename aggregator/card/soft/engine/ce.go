package engine

import "encoding/binary"

// ceSlots is the number of dwords of the copy engine's methods.
const ceSlots = 0x344 / 4

// CE is one channel's context on a copy engine. The zero value is the context
// after a reset. It is plain data, as GR is.
type CE struct {
	// Class is the class of the object bound to the engine, for the counters:
	// 90b5 or 90b8; others count as 90b5.
	Class uint16
	// Values is the last data of each method.
	Values [ceSlots]uint32
	Transfer
}

// ceEffects has the effects of methods beyond storing their data.
var ceEffects = map[string]func(c *CE, env *Env, data uint32) Outcome{
	"EXEC":          (*CE).exec,
	"WRCACHE_FLUSH": (*CE).flush,
	"PM_TRIGGER":    (*CE).flush,
}

// ceActs is ceEffects by method / 4.
var ceActs = func() (acts [ceSlots]func(*CE, *Env, uint32) Outcome) {
	for name, act := range ceEffects {
		acts[classes[place90b5].named(name).Offset/4] = act
	}
	return acts
}()

// Methods of the copy engine, as places in CE.Values.
const (
	ceXCnt      = 0x324 / 4
	ceYCnt      = 0x328 / 4
	ceFormat    = 0x32c / 4
	ceConst0    = 0x330 / 4
	ceConst1    = 0x334 / 4
	ceQueryHigh = 0x338 / 4
	ceQueryLow  = 0x33c / 4
	ceCounter   = 0x340 / 4
)

// ceSide names the methods that describe one side of a copy.
type ceSide struct {
	mode, xsize, ysize, zoff, xoff, yoff, high, low, pitch uint32
}

var (
	ceSrc = ceSide{0x200 / 4, 0x204 / 4, 0x208 / 4, 0x210 / 4, 0x214 / 4, 0x218 / 4, 0x30c / 4, 0x310 / 4, 0x31c / 4}
	ceDst = ceSide{0x220 / 4, 0x224 / 4, 0x228 / 4, 0x230 / 4, 0x234 / 4, 0x238 / 4, 0x314 / 4, 0x318 / 4, 0x320 / 4}
)

// Bits of EXEC.
const (
	execFormat     = 1 << 0
	execSrcLinear  = 1 << 4
	execDstLinear  = 1 << 8
	execQuery      = 1 << 12
	execQueryShort = 1 << 13
)

// Method carries out one method write. method is in bytes.
func (c *CE) Method(env *Env, method, data uint32) Outcome {
	if c.Op.Kind != OpNone {
		return Busy
	}
	st := &env.Stats.class[c.class().place]
	if _, reason := c.class().check(method, data); reason != 0 {
		c.Refusal = Refusal{c.Class, reason, method, data}
		st.Illegal.Add(1)
		return Illegal
	}
	st.Methods.Add(1)
	c.Values[method/4] = data
	if act := ceActs[method/4]; act != nil {
		return act(c, env, data)
	}
	return Done
}

// Idle reports whether no work is left.
func (c *CE) Idle() bool { return c.Op.Kind == OpNone }

// Abort drops the remaining work.
func (c *CE) Abort() { c.Op = Op{} }

func (c *CE) class() *Class {
	if c.Class == classes[place90b8].ID {
		return classes[place90b8]
	}
	return classes[place90b5]
}

// flush: there is no cache to flush and no monitor to trigger; it is counted.
func (c *CE) flush(env *Env, _ uint32) Outcome {
	env.Stats.class[c.class().place].Flushes.Add(1)
	return Done
}

// exec starts a copy. The query is written after it: the counter, and unless it is short
// also {0, time} after it, which is written first.
func (c *CE) exec(env *Env, data uint32) Outcome {
	env.launched(c.class().place)
	v := &c.Values
	c.Op = c.class().op(OpCopy)
	cp := &c.Op.Copy
	srcCPP, dstCPP := uint32(1), uint32(1)
	if data&execFormat != 0 {
		cp.Remap = newRemap(v[ceFormat], v[ceConst0], v[ceConst1])
		srcCPP, dstCPP = uint32(cp.Remap.SrcCPP), uint32(cp.Remap.DstCPP)
	}
	cp.Src = ceSrc.surface(v, srcCPP, data&execSrcLinear != 0)
	cp.Dst = ceDst.surface(v, dstCPP, data&execDstLinear != 0)
	cp.Length, cp.Lines = uint64(v[ceXCnt]), uint64(v[ceYCnt])
	if data&execQuery != 0 {
		c.Op.Release = newRelease(address(v[ceQueryHigh], v[ceQueryLow]), data&execQueryShort != 0, v[ceCounter])
		// The microcode adds 4 to the low half without a carry.
		c.Op.Release.Tail = address(v[ceQueryHigh], v[ceQueryLow]+4)
	}
	return c.Step(env)
}

// newRemap reads FORMAT: a nibble for each destination component (source
// component 0 to 3, constant 4 or 5, else zero), 17:16 bytes per component - 1,
// 21:20 source components - 1, 25:24 destination components - 1.
func newRemap(format, const0, const1 uint32) Remap {
	size := uint8(format>>16&3) + 1
	r := Remap{On: true, SrcCPP: (uint8(format>>20&3) + 1) * size, DstCPP: (uint8(format>>24&3) + 1) * size}
	for i := range r.Lanes {
		comp, b := uint8(i)/size, uint8(i)%size
		if comp > 3 {
			break // after the last destination byte
		}
		switch sel := uint8(format >> (4 * comp) & 0xf); {
		case sel < 4:
			r.Lanes[i] = sel*size + b
			r.Reads = r.Reads || i < int(r.DstCPP)
		case sel == 4:
			r.Lanes[i] = laneConst0 + b
		case sel == 5:
			r.Lanes[i] = laneConst1 + b
		default:
			r.Lanes[i] = laneZero
		}
	}
	binary.LittleEndian.PutUint32(r.Consts[0:], const0)
	binary.LittleEndian.PutUint32(r.Consts[4:], const1)
	return r
}

// surface describes one side as the microcode sets the copy hardware up. The
// microcode computes the place in a tiled surface with 32-bit sums and with
// products of 16-bit factors; so does this.
func (s *ceSide) surface(v *[ceSlots]uint32, cpp uint32, linear bool) Surface {
	va := address(v[s.high], v[s.low])
	if linear {
		return Surface{VA: va, Stride: uint64(v[s.pitch])}
	}
	const narrow = 0xe
	layout, tp := LayoutGOB, uint32(6)
	if v[s.mode]&0xf == narrow {
		layout, tp = LayoutSector, 4
	}
	th := v[s.mode]>>4&0xf + 3
	td := v[s.mode] >> 8 & 0xf
	ts := tp + th + td

	x, y, z := mulu(v[s.xoff], cpp), v[s.yoff], v[s.zoff]
	xo, yo, zo := x&(1<<tp-1), y&(1<<th-1), z&(1<<td-1)
	nx := (mulu(v[s.xsize], cpp) + 1<<tp - 1) >> tp
	ny := (v[s.ysize] + 1<<th - 1) >> th
	tile := x>>tp + mulu(y>>th, nx) + mulu(mulu(z>>td, nx), ny)
	inTile := xo + yo<<tp + shl(zo, tp+th)
	start := va + uint64(shl(tile, ts)+inTile)

	return Surface{
		Layout:     layout,
		BlockRows:  uint8(th),
		BlockBytes: uint8(ts),
		VA:         (start - uint64(xo+yo<<tp)) & vaMask,
		Stride:     uint64(shl(nx-1, ts)) + 1<<ts,
		X:          uint64(xo),
		Y:          uint64(yo),
	}
}

// mulu is the falcon's multiplication.
func mulu(a, b uint32) uint32 { return a & 0xffff * (b & 0xffff) }

// shl is the falcon's shift: only the low five bits of the distance count.
func shl(a, n uint32) uint32 { return a << (n & 31) }
