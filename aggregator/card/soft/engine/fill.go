package engine

// Fill is a clear under way: one value for the pixels of a rectangle.
type Fill struct {
	Dst           Surface
	Bytes         uint8 // of a pixel
	Value, Mask   pixel // only bits in Mask change
	Width, Height uint64
	// X and Y are the first pixel that is not done.
	X, Y uint64
}

// run writes pixels until the rectangle is complete, the budget is spent or an access faults.
func (f *Fill) run(env *Env) (done bool, written uint64, fault *Fault) {
	if f.Width == 0 {
		return true, 0, nil
	}
	n := uint64(f.Bytes)
	for left := int64(env.budget()); left > 0 && f.Y < f.Height && !env.Over(); left -= lineCost {
		env.Charge(lineCost)
		together := f.Dst.run(f.X*n, (f.Width-f.X)*n)
		mem, fault := env.fetch(f.Dst.at(f.X*n, f.Y), together, true)
		if fault != nil {
			return false, written, fault
		}
		k := uint64(0)
		for ; (k+1)*n <= uint64(len(mem)); k++ {
			f.put(mem[k*n:])
		}
		if k == 0 { // it crosses a page
			if fault := f.split(env); fault != nil {
				return false, written, fault
			}
			k = 1
		}
		written += k * n
		left -= int64(k * n)
		env.Charge(int64(k * n))
		if f.X += k; f.X == f.Width {
			f.X, f.Y = 0, f.Y+1
		}
	}
	return f.Y >= f.Height, written, nil
}

func (f *Fill) put(mem []byte) {
	for i := range f.Bytes {
		mem[i] = mem[i]&^f.Mask[i] | f.Value[i]&f.Mask[i]
	}
}

// split writes a pixel that is not in one piece.
func (f *Fill) split(env *Env) *Fault {
	var p pixel
	n := uint64(f.Bytes)
	va := f.Dst.at(f.X*n, f.Y)
	if fault := read(env, va, p[:n]); fault != nil {
		return fault
	}
	f.put(p[:n])
	var pos uint8
	return put(env, va, p[:n], &pos)
}

// Methods of a clear, as places in GR.Values.
const (
	clearTargets      = 0x800 / 4 // address, width, height, format, memory, third dimension, pitch, layer
	clearTargetStride = 0x40 / 4
	clearRectX        = 0xd6c / 4 // then Y: first and end
	clearColor        = 0xd80 / 4
	clearScissor      = 0xe00 / 4 // enable, then X and Y: first and end
	clearClipX        = 0xff4 / 4 // then Y: first and size
	clearControl      = 0x10f8 / 4
	clearSelect       = 0x121c / 4
)

// Bits of CLEAR_SURFACE and of SET_CLEAR_SURFACE_CONTROL.
const (
	clearZeta         = 3 // depth and stencil
	clearUsesRect     = 1 << 4
	clearUsesScissor  = 1 << 8
	clearUsesViewport = 1 << 12
)

// clearSurface clears a colour target. Zeta targets and viewports are not carried out.
func clearSurface(g *GR, env *Env, c call) Outcome {
	if g.skipped(c.class) {
		return Done
	}
	v := &g.Values[c.class.place]
	target := v[clearSelect] >> (4 + 3*(c.data>>6&7)) & 7
	t := v[clearTargets+target*clearTargetStride:]
	format := &colorFormats[uint8(t[4])]
	if c.data&clearZeta != 0 || v[clearControl]&clearUsesViewport != 0 || format.bytes == 0 {
		return notRun(g, env, c)
	}
	f := Fill{Bytes: format.bytes}
	f.Value, f.Mask = format.pack([4]uint32(v[clearColor:]), c.data>>2&0xf)
	box := rectangle{0, 0, uint64(t[2]), uint64(t[3])}
	if t[5]&targetPitch != 0 {
		box.x1 /= uint64(f.Bytes)
	}
	box.clip(v[clearClipX]&0xffff, v[clearClipX]&0xffff+v[clearClipX]>>16, v[clearClipX+1]&0xffff, v[clearClipX+1]&0xffff+v[clearClipX+1]>>16)
	if v[clearControl]&clearUsesRect != 0 {
		box.clip(v[clearRectX]&0xffff, v[clearRectX]>>16, v[clearRectX+1]&0xffff, v[clearRectX+1]>>16)
	}
	if s := v[clearScissor:]; v[clearControl]&clearUsesScissor != 0 && s[0] != 0 {
		box.clip(s[1]&0xffff, s[1]>>16, s[2]&0xffff, s[2]>>16)
	}
	f.Dst = targetSurface(t, uint64(t[8])+uint64(c.data>>10&0xffff), uint64(f.Bytes))
	f.Dst.X, f.Dst.Y = box.x0*uint64(f.Bytes), box.y0
	f.Width, f.Height = box.x1-box.x0, box.y1-box.y0
	env.launched(c.class.place)
	g.Op = c.class.op(OpFill)
	g.Op.Fill = f
	return g.work(env)
}

// rectangle is empty if its end is not after its beginning.
type rectangle struct{ x0, y0, x1, y1 uint64 }

func (r *rectangle) clip(x0, x1, y0, y1 uint32) {
	r.x0, r.y0 = max(r.x0, uint64(x0)), max(r.y0, uint64(y0))
	r.x1, r.y1 = max(r.x0, min(r.x1, uint64(x1))), max(r.y0, min(r.y1, uint64(y1)))
}

// Bits of SET_COLOR_TARGET_MEMORY.
const (
	targetPitch  = 1 << 12
	targetVolume = 1 << 16 // the third dimension is depth, not layers
)

// targetSurface describes a layer of a colour target.
func targetSurface(t []uint32, layer, bytes uint64) Surface {
	va := address(t[0], t[1])
	if t[5]&targetPitch != 0 {
		return Surface{VA: va, Stride: uint64(t[2])}
	}
	deep := uint32(0)
	if t[5]&targetVolume != 0 {
		deep = t[5] >> 8 & 0xf
	} else {
		va, layer = va+layer*uint64(t[7])*4, 0
	}
	return blockLinear(va, uint64(t[2])*bytes, uint64(t[3]), t[5]>>4&0xf, deep, layer)
}
