package engine

// Blit is a copy of pixels by the 2D class under way.
type Blit struct {
	Src, Dst             Surface
	SrcFormat, DstFormat uint8
	// Same: pixels are copied as they are.
	Same          bool
	Width, Height uint64
	// DX and DY are the steps in the source, 1 or -1, from U and V on. Pixels outside of the
	// source are those at its edge.
	DX, DY, U, V        int64
	SrcWidth, SrcHeight uint64
	// X and Y are the first pixel that is not done.
	X, Y uint64
}

// run copies pixels until the rectangle is complete, the budget is spent or an access faults.
func (b *Blit) run(env *Env) (done bool, written uint64, fault *Fault) {
	if b.Width == 0 {
		return true, 0, nil
	}
	from, to := &colorFormats[b.SrcFormat], &colorFormats[b.DstFormat]
	for left := int64(env.budget()); left > 0 && b.Y < b.Height && !env.Over(); left -= lineCost {
		env.Charge(lineCost)
		var p pixel
		u := edge(b.U+int64(b.X)*b.DX, b.SrcWidth)
		v := edge(b.V+int64(b.Y)*b.DY, b.SrcHeight)
		if fault := read(env, b.Src.at(u*uint64(from.bytes), v), p[:from.bytes]); fault != nil {
			return false, written, fault
		}
		if !b.Same {
			p, _ = to.pack(from.unpack(&p), 0xf)
		}
		var pos uint8
		if fault := put(env, b.Dst.at(b.X*uint64(to.bytes), b.Y), p[:to.bytes], &pos); fault != nil {
			return false, written, fault
		}
		written += uint64(to.bytes)
		if b.X++; b.X == b.Width {
			b.X, b.Y = 0, b.Y+1
		}
	}
	return b.Y >= b.Height, written, nil
}

func edge(at int64, size uint64) uint64 { return uint64(max(0, min(at, int64(size)-1))) }

// Methods of a blit, as places in GR.Values.
const (
	blitDst       = 0x200 / 4 // format, layout, block size, depth, layer, pitch, width, height, address
	blitSrc       = 0x230 / 4
	blitClip      = 0x280 / 4 // X, Y, width, height, enable
	blitKey       = 0x29c / 4
	blitOperation = 0x2ac / 4
	blitZeta      = 0x2b8 / 4
	blitRect      = 0x8b0 / 4 // X, Y, width, height
	blitSteps     = 0x8c0 / 4 // du/dx and dv/dy, then the first X and Y of the source: fraction, integer
)

const (
	operationCopy = 3
	blitOne       = 1 << 32 // a step of one pixel
)

// blit copies pixels without scaling. Scaling, and operations other than a copy, are not carried
// out.
func blit(g *GR, env *Env, c call) Outcome {
	if g.skipped(c.class) {
		return Done
	}
	v := &g.Values[c.class.place]
	fixed := func(i int) int64 { return int64(uint64(v[blitSteps+i+1])<<32 | uint64(v[blitSteps+i])) }
	d, s := v[blitDst:], v[blitSrc:]
	from, to := &colorFormats[uint8(s[0])], &colorFormats[uint8(d[0])]
	dx, dy, u, y := fixed(0), fixed(2), fixed(4), fixed(6)
	simple := (dx == blitOne || dx == -blitOne) && (dy == blitOne || dy == -blitOne) && uint32(u) == 0 && uint32(y) == 0
	if !simple || v[blitOperation] != operationCopy || v[blitKey] != 0 || v[blitZeta] != 0 ||
		from.bytes == 0 || to.bytes == 0 || from.integer != to.integer || s[6] == 0 || s[7] == 0 {
		return notRun(g, env, c)
	}
	b := Blit{
		Src: blitSurface(s, from), Dst: blitSurface(d, to), SrcFormat: uint8(s[0]), DstFormat: uint8(d[0]), Same: s[0] == d[0],
		DX: dx >> 32, DY: dy >> 32, U: u >> 32, V: y >> 32, SrcWidth: uint64(s[6]), SrcHeight: uint64(s[7]),
	}
	r := v[blitRect:]
	box := rectangle{uint64(r[0]), uint64(r[1]), uint64(r[0]) + uint64(r[2]), uint64(r[1]) + uint64(r[3])}
	x0, y0 := box.x0, box.y0
	box.clip(0, d[6], 0, d[7])
	if p := v[blitClip:]; p[4] != 0 {
		box.clip(p[0], p[0]+p[2], p[1], p[1]+p[3])
	}
	b.U, b.V = b.U+int64(box.x0-x0)*b.DX, b.V+int64(box.y0-y0)*b.DY
	b.Dst.X, b.Dst.Y = box.x0*uint64(to.bytes), box.y0
	b.Width, b.Height = box.x1-box.x0, box.y1-box.y0
	env.launched(c.class.place)
	g.Op = c.class.op(OpBlit)
	g.Op.Blit = b
	return g.work(env)
}

// blitSurface describes one side. The source has no layer.
func blitSurface(t []uint32, f *colorFormat) Surface {
	va := address(t[8], t[9])
	if t[1] != 0 {
		return Surface{VA: va, Stride: uint64(t[5])}
	}
	return blockLinear(va, uint64(t[6])*uint64(f.bytes), uint64(t[7]), t[2]>>4&7, t[2]>>8&7, uint64(t[4]))
}
