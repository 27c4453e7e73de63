package engine

// Methods of 9039, as places in GR.Values.
const (
	m2mfRenderA    = 0x338 / 4
	m2mfOverride   = 0x308 / 4
	m2mfLineLength = 0x31c / 4
	m2mfLineCount  = 0x320 / 4
	m2mfSemaphoreA = 0x32c / 4
	m2mfSemaphoreB = 0x330 / 4
	m2mfSemaphoreC = 0x334 / 4
)

// m2mfSide names the methods that describe one side of a copy.
type m2mfSide struct {
	blockSize, width, height, layer, upper, lower, pitch, x, y uint32
}

var (
	m2mfSrc = m2mfSide{0x204 / 4, 0x208 / 4, 0x20c / 4, 0x214 / 4, 0x30c / 4, 0x310 / 4, 0x314 / 4, 0x344 / 4, 0x348 / 4}
	m2mfDst = m2mfSide{0x220 / 4, 0x224 / 4, 0x228 / 4, 0x230 / 4, 0x238 / 4, 0x23c / 4, 0x318 / 4, 0x34c / 4, 0x350 / 4}
)

// Fields of LAUNCH_DMA.
const (
	launchInline    = 1 << 0
	launchSrcPitch  = 1 << 4
	launchDstPitch  = 1 << 8
	launchRelease   = 2 << 12
	launchComplete  = 3 << 12
	launchInterrupt = 3 << 16
	launchOneWord   = 1 << 20
)

func validLaunch(data uint32) bool {
	return data&launchComplete <= launchRelease && data>>16&3 <= 1
}

// validBlockSize: one GOB wide, up to 32 GOBs high and deep.
func validBlockSize(data uint32) bool {
	return data&0xf == 0 && data>>4&0xf <= 5 && data>>8&0xf <= 5
}

// surface describes one side from its methods. The origin counts only in a
// block-linear surface. Pitches are unsigned: the class gives them 32 plain
// bits.
func (s *m2mfSide) surface(v *[methodSlots]uint32, pitch bool) Surface {
	va := address(v[s.upper], v[s.lower])
	if pitch {
		return Surface{VA: va, Stride: uint64(v[s.pitch])}
	}
	out := blockLinear(va, uint64(v[s.width]), uint64(v[s.height]), v[s.blockSize]>>4&0xf, v[s.blockSize]>>8&0xf, uint64(v[s.layer]))
	out.X, out.Y = uint64(v[s.x]), uint64(v[s.y])
	return out
}

// address joins the halves of a 40-bit address.
func address(upper, lower uint32) uint64 {
	return uint64(upper)<<32&vaMask | uint64(lower)
}

// launchDMA starts a copy, or an upload that waits for its data. A launch ends
// an upload that has not got all its data; that upload's semaphore is not
// released.
func launchDMA(g *GR, env *Env, c call) Outcome {
	v := &g.Values[c.class.place]
	g.Upload = Upload{}
	if g.skipped(c.class) {
		return Done
	}
	env.launched(c.class.place)
	g.Op = c.class.op(OpCopy)
	if c.data&launchComplete == launchRelease {
		g.Op.Release = newRelease(address(v[m2mfSemaphoreA], v[m2mfSemaphoreB]), c.data&launchOneWord != 0, v[m2mfSemaphoreC])
	}
	if c.data&launchInterrupt != 0 {
		g.Op.Events = 1 << EventInterrupt
	}
	dst := m2mfDst.surface(v, c.data&launchDstPitch != 0)
	length, lines := uint64(v[m2mfLineLength]), uint64(v[m2mfLineCount])
	if c.data&launchInline == 0 {
		g.Op.Copy = Copy{Src: m2mfSrc.surface(v, c.data&launchSrcPitch != 0), Dst: dst, Length: length, Lines: lines}
		return g.work(env)
	}
	g.Upload = Upload{Open: true, Dst: dst, Length: length, Lines: lines, Release: g.Op.Release, Events: g.Op.Events}
	g.Op = c.class.op(OpNone)
	if g.Upload.left() == 0 {
		return g.finishUpload(env)
	}
	return Done
}

func loadInlines(g *GR, env *Env, c *Class, data []byte) (int, Outcome) { return g.load(env, c, data) }
