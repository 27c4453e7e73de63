package engine

import "encoding/binary"

// copySlots is the number of dwords of c8b5's methods.
const copySlots = 0x1118 / 4

// HopperCopy is one channel's context on a copy engine of a GH100. The zero value is the context
// after a reset.
type HopperCopy struct {
	// Values is the last data of each method.
	Values [copySlots]uint32
	Transfer
}

// Methods of c8b5, as places in HopperCopy.Values.
const (
	copySemaphore  = 0x240 / 4 // upper, lower, payload, upper payload
	copyLineLength = 0x418 / 4
	copyLineCount  = 0x41c / 4
	copyConstA     = 0x700 / 4
	copyConstB     = 0x704 / 4
	copyComponents = 0x708 / 4
)

// copySide names the methods that describe one side of a copy. origin packs x and y, which the
// two methods at x have of 32 bits each.
type copySide struct{ upper, pitch, block, width, height, layer, origin, x uint32 }

var (
	copySrc = copySide{0x400 / 4, 0x410 / 4, 0x728 / 4, 0x72c / 4, 0x730 / 4, 0x738 / 4, 0x73c / 4, 0x744 / 4}
	copyDst = copySide{0x408 / 4, 0x414 / 4, 0x70c / 4, 0x710 / 4, 0x714 / 4, 0x71c / 4, 0x720 / 4, 0x74c / 4}
)

// Fields of LAUNCH_DMA.
const (
	copyTransfer   = 3 << 0 // 0 moves nothing
	copyTimed      = 2 << 3
	copySrcPitch   = 1 << 7
	copyDstPitch   = 1 << 8
	copyMultiLine  = 1 << 9
	copyRemap      = 1 << 10
	copyUnsigned   = 1 << 18
	copyReduces    = 1 << 19
	copyTwoWords   = 1 << 27
	copyUnanswered = 1<<12 | 1<<13 | 3<<20 | 1<<22 | 1<<23 // physical addresses, secure copies, VPR, scrubs
	copyReserved   = 1<<24 | 0xf<<28
)

// validCopy: semaphores of type 3 interrupt on a condition, which this card does not know.
func validCopy(data uint32) bool {
	reduction := Reduction(data >> 14 & 0xf)
	return data&copyTransfer != copyTransfer && data>>3&3 != 3 && data>>5&3 != 3 && data&(copyUnanswered|copyReserved) == 0 &&
		(data&copyReduces == 0 || reduction.Supported(data&copyTwoWords != 0, data&copyUnsigned != 0))
}

// validComponents: each takes a source component, a constant, or is not written.
func validComponents(data uint32) bool { return data&(data>>1)&(data>>2)&0x1111 == 0 }

// validCopyBlock: one GOB wide, up to 32 GOBs high and deep, of eight lines.
func validCopyBlock(data uint32) bool { return validBlockSize(data&0xfff) && data>>12 <= 1 }

// validRender: copies under a condition are none that this card knows.
func validRender(data uint32) bool { return data == 1 }

var effectsC8B5 = map[string]effect{
	"LAUNCH_DMA":           {valid: validCopy},
	"SET_REMAP_COMPONENTS": {valid: validComponents},
	"SET_SRC_BLOCK_SIZE":   {valid: validCopyBlock},
	"SET_DST_BLOCK_SIZE":   {valid: validCopyBlock},
	"SET_RENDER_ENABLE_C":  {valid: validRender},
}

// copyActs are the effects beyond storing data.
var copyActs = map[string]func(h *HopperCopy, env *Env, data uint32) Outcome{
	"LAUNCH_DMA":     (*HopperCopy).launch,
	"SET_SRC_ORIGIN": func(h *HopperCopy, _ *Env, data uint32) Outcome { return h.unpack(copySrc.x, data) },
	"SET_DST_ORIGIN": func(h *HopperCopy, _ *Env, data uint32) Outcome { return h.unpack(copyDst.x, data) },
}

// copyAct is copyActs by method / 4.
var copyAct = func() (acts [copySlots]func(*HopperCopy, *Env, uint32) Outcome) {
	for name, act := range copyActs {
		acts[classes[placeC8B5].named(name).Offset/4] = act
	}
	return acts
}()

func (h *HopperCopy) unpack(x, data uint32) Outcome {
	h.Values[x], h.Values[x+1] = data&0xffff, data>>16
	return Done
}

// Method carries out one method write. method is in bytes.
func (h *HopperCopy) Method(env *Env, class uint16, method, data uint32) Outcome {
	if h.Op.Kind != OpNone {
		return Busy
	}
	c := classes[placeC8B5]
	st := &env.Stats.class[placeC8B5]
	if _, reason := c.check(method, data); reason != 0 || class != c.ID {
		if class != c.ID {
			reason = NoClass
		}
		return h.refuse(env, class, reason, method, data)
	}
	st.Methods.Add(1)
	h.Values[method/4] = data
	if act := copyAct[method/4]; act != nil {
		return act(h, env, data)
	}
	return Done
}

func (h *HopperCopy) refuse(env *Env, class uint16, reason Reason, method, data uint32) Outcome {
	h.Refusal = Refusal{class, reason, method, data}
	env.Stats.class[placeC8B5].Illegal.Add(1)
	return Illegal
}

// launch starts a copy. Its semaphore is released after it, and after that its interrupt is sent.
// A semaphore must be aligned to what it has.
func (h *HopperCopy) launch(env *Env, data uint32) Outcome {
	v := &h.Values
	op := classes[placeC8B5].op(OpCopy)
	if data>>3&3 != 0 {
		r := &op.Release
		*r = Release{Words: 1, VA: wideAddress(v[copySemaphore], v[copySemaphore+1])}
		r.Tail, r.Wide, r.Unsigned = r.VA+4, data&copyTwoWords != 0, data&copyUnsigned != 0
		binary.LittleEndian.PutUint32(r.Head[:], v[copySemaphore+2])
		if r.Wide {
			r.Words = 2
			binary.LittleEndian.PutUint32(r.Head[4:], v[copySemaphore+3])
		}
		if data&copyTimed != 0 {
			r.Words = 4
		}
		if data&copyReduces != 0 {
			r.Reduce = uint8(data>>14&0xf) + 1
		}
		if r.VA%uint64(4*r.Words) != 0 {
			return h.refuse(env, classes[placeC8B5].ID, BadEnum, 0x300, data)
		}
	}
	if data>>5&3 != 0 {
		op.Events = 1 << EventInterrupt
	}
	env.launched(placeC8B5)
	if data&copyTransfer != 0 {
		cp := &op.Copy
		srcCPP, dstCPP := uint64(1), uint64(1)
		if data&copyRemap != 0 {
			cp.Remap = newRemap(v[copyComponents], v[copyConstA], v[copyConstB])
			cp.Remap.keep(v[copyComponents])
			srcCPP, dstCPP = uint64(cp.Remap.SrcCPP), uint64(cp.Remap.DstCPP)
		}
		cp.Src = copySrc.surface(v, srcCPP, data&copySrcPitch != 0)
		cp.Dst = copyDst.surface(v, dstCPP, data&copyDstPitch != 0)
		if cp.Length, cp.Lines = uint64(v[copyLineLength]), 1; data&copyMultiLine != 0 {
			cp.Lines = uint64(v[copyLineCount])
		}
	}
	h.Op = op
	return h.work(env)
}

// surface describes one side. Widths and origins of a block-linear one are in elements.
func (s *copySide) surface(v *[copySlots]uint32, cpp uint64, pitch bool) Surface {
	va := wideAddress(v[s.upper], v[s.upper+1])
	if pitch {
		return Surface{VA: va, Stride: uint64(v[s.pitch])}
	}
	out := blockLinear(va, uint64(v[s.width])*cpp, uint64(v[s.height]), v[s.block]>>4&0xf, v[s.block]>>8&0xf, uint64(v[s.layer]))
	out.X, out.Y = uint64(v[s.x])*cpp, uint64(v[s.x+1])
	return out
}
