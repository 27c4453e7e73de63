package gpu

import (
	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/push"
)

// fakeLimit is how many bytes a launch may move.
const fakeLimit = 64 << 20

// fakeSide gives the address of a byte of a line.
type fakeSide func(line, x uint64) uint64

func fakeLinear(base uint64, pitch uint32) fakeSide {
	return func(line, x uint64) uint64 { return base + line*uint64(pitch) + x }
}

// fakeTiled follows the formula in the comments of nouveau's copy microcode, with the order of
// bytes in a GOB on top: width in bytes.
func fakeTiled(base uint64, mode, width, height, layer, x0, y0 uint32, off bool) fakeSide {
	th, td := mode>>4&0xf+3, mode>>8&0xf
	if off {
		return fakeLinear(base+uint64(y0)*uint64(width)+uint64(x0), width)
	}
	nTx := uint64(width+63) >> 6
	nTy := (uint64(height) + 1<<th - 1) >> th
	return func(line, i uint64) uint64 {
		x, y, z := uint64(x0)+i, uint64(y0)+line, uint64(layer)
		tile := (z>>td)*nTy*nTx + (y>>th)*nTx + x>>6
		yIn, zIn := y&(1<<th-1), z&(1<<td-1)
		at := tile<<(td+th+6) + zIn<<(th+6) + (yIn>>3)<<9
		return base + at + gobByte(x&63, yIn&7)
	}
}

// gobByte places a byte by the bits of its column and line.
func gobByte(x, y uint64) uint64 {
	var at uint64
	for _, b := range []struct{ from, bit, to uint64 }{
		{x, 0, 0}, {x, 1, 1}, {x, 2, 2}, {x, 3, 3}, {y, 0, 4}, {x, 4, 5}, {y, 1, 6}, {y, 2, 7}, {x, 5, 8},
	} {
		at |= (b.from >> b.bit & 1) << b.to
	}
	return at
}

// rows copies lines of n bytes, transformed by f.
func (c *fakeChannel) rows(src, dst fakeSide, lines, srcN, dstN uint32, f func(line []byte) []byte) {
	line := make([]byte, srcN)
	for l := range uint64(lines) {
		for i := range line {
			m := c.d.at(src(l, uint64(i)), 1)
			if m == nil {
				c.fault(src(l, uint64(i)))
				return
			}
			line[i] = m[0]
		}
		if !c.put(dst, l, f(line)[:dstN]) {
			return
		}
	}
}

func (c *fakeChannel) put(dst fakeSide, line uint64, data []byte) bool {
	for i, v := range data {
		at := dst(line, uint64(i))
		if c.d.g.shift {
			at++
		}
		m := c.d.at(at, 1)
		if m == nil {
			c.fault(at)
			return false
		}
		m[0] = v
	}
	return true
}

func (c *fakeChannel) m2mf(sc int, m push.Method, v uint32) {
	r := c.regs[sc]
	switch m {
	case push.M2MFInlineData:
		c.inline.data = append(c.inline.data, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		n := int(r[push.M2MFLineLength] * r[push.M2MFLineCount])
		if c.inline.sc == sc && n > 0 && len(c.inline.data) >= n {
			dst := c.m2mfDst(r)
			for l := range uint64(r[push.M2MFLineCount]) {
				c.put(dst, l, c.inline.data[l*uint64(r[push.M2MFLineLength]):][:r[push.M2MFLineLength]])
			}
			c.inline.data, c.inline.sc = nil, -1
			c.m2mfDone(r)
		}
	case push.M2MFLaunch:
		if v&push.LaunchInline != 0 {
			c.inline = fakeInline{sc: sc}
			return
		}
		src := fakeLinear(va(r, push.M2MFOffsetInA), r[push.M2MFPitchIn])
		if v&push.LaunchSrcPitch == 0 {
			src = fakeTiled(va(r, push.M2MFOffsetInA), r[push.M2MFSrcBlockSize], r[push.M2MFSrcWidth], r[push.M2MFSrcHeight],
				r[push.M2MFSrcLayer], r[push.M2MFSrcOriginX], r[push.M2MFSrcOriginY], c.d.g.tilesOff)
		}
		n := r[push.M2MFLineLength]
		if uint64(n)*uint64(r[push.M2MFLineCount]) > fakeLimit {
			c.offend(drm.OffenceMMUFault, "fifo: fault 00, ch %d", c.id) // as a server with a limit does
			return
		}
		c.rows(src, c.m2mfDst(r), r[push.M2MFLineCount], n, n, func(b []byte) []byte { return b })
		c.m2mfDone(r)
	}
}

func (c *fakeChannel) m2mfDst(r map[push.Method]uint32) fakeSide {
	if r[push.M2MFLaunch]&push.LaunchDstPitch != 0 {
		return fakeLinear(va(r, push.M2MFOffsetOutA), r[push.M2MFPitchOut])
	}
	return fakeTiled(va(r, push.M2MFOffsetOutA), r[push.M2MFDstBlockSize], r[push.M2MFDstWidth], r[push.M2MFDstHeight],
		r[push.M2MFDstLayer], r[push.M2MFDstOriginX], r[push.M2MFDstOriginY], c.d.g.tilesOff)
}

func (c *fakeChannel) m2mfDone(r map[push.Method]uint32) {
	if v := r[push.M2MFLaunch]; v>>12&3 == 2 && !c.killed {
		c.release(va(r, push.M2MFSemaphoreA), r[push.M2MFSemaphoreA+8], v>>20&1 == 1)
	}
}

func (c *fakeChannel) ce(r map[push.Method]uint32, exec uint32) {
	size, in, out := uint32(1), uint32(1), uint32(1)
	format := r[push.CEFormat]
	if exec&push.CEExecFormat != 0 {
		size, in, out = format>>16&3+1, format>>20&3+1, format>>24&3+1
	}
	srcN, dstN := r[push.CEXCnt]*size*in, r[push.CEXCnt]*size*out
	src := fakeLinear(va(r, push.CESrcAddressHigh), r[push.CESrcPitch])
	if exec&push.CEExecSrcLinear == 0 {
		src = c.ceTiled(r, push.CESrcTileMode, va(r, push.CESrcAddressHigh), size*in)
	}
	dst := fakeLinear(va(r, push.CESrcAddressHigh+8), r[push.CESrcPitch+4])
	if exec&push.CEExecDstLinear == 0 {
		dst = c.ceTiled(r, push.CEDstTileMode, va(r, push.CESrcAddressHigh+8), size*out)
	}
	c.rows(src, dst, r[push.CEYCnt], srcN, dstN, func(b []byte) []byte {
		if exec&push.CEExecFormat == 0 {
			return b
		}
		return shuffle(b, format, size, in, out, r[push.CEXCnt], [2]uint32{r[push.CESwzConst0], r[push.CESwzConst1]})
	})
	if exec&push.CEExecQuery != 0 && !c.killed {
		c.release(va(r, push.CEQueryHigh), r[push.CEQueryHigh+8], exec&push.CEExecQueryShort != 0)
	}
}

func (c *fakeChannel) ceTiled(r map[push.Method]uint32, m push.Method, base uint64, cpp uint32) fakeSide {
	return fakeTiled(base, r[m], r[m+4]*cpp, r[m+8], r[m+0x10], r[m+0x14]*cpp, r[m+0x18], c.d.g.tilesOff)
}

func shuffle(b []byte, format, size, in, out, n uint32, consts [2]uint32) []byte {
	var res []byte
	for e := range n {
		for k := range out {
			for i := range size {
				switch s := format >> (4 * k) & 0xf; {
				case s < 4:
					res = append(res, b[(e*in+s)*size+i])
				case s < 6:
					res = append(res, byte(consts[s-4]>>(8*i)))
				default:
					res = append(res, 0)
				}
			}
		}
	}
	return res
}
