package interp

import (
	"encoding/binary"
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// u32 returns the raw bits of a source of 32 bits.
func (x *exec) u32(src, lane int) uint32 {
	v := &x.in.Src[src]
	switch v.Kind {
	case isa.Reg:
		return x.w.Regs[v.Reg][lane]
	case isa.None:
		return 0
	case isa.Imm:
		return uint32(v.Value)
	case isa.Const:
		var b [4]byte
		x.constant(lane, v.Bank, v.Value, b[:])
		return binary.LittleEndian.Uint32(b[:])
	}
	panic("interp: operand of another kind")
}

// u64 returns the raw bits of a source of 64 bits.
func (x *exec) u64(src, lane int) uint64 {
	v := &x.in.Src[src]
	switch v.Kind {
	case isa.Reg:
		return x.pair(v.Reg, lane)
	case isa.Imm:
		return uint64(v.Value)
	case isa.Const:
		var b [8]byte
		x.constant(lane, v.Bank, v.Value, b[:])
		return binary.LittleEndian.Uint64(b[:])
	}
	panic("interp: operand of another kind")
}

func (x *exec) pair(reg uint8, lane int) uint64 {
	if reg == isa.Zero {
		return 0
	}
	return uint64(x.w.Regs[reg][lane]) | uint64(x.w.Regs[reg+1][lane])<<32
}

// constant reads c[bank][offset].
func (x *exec) constant(lane int, bank uint8, offset int64, to []byte) {
	b := &x.b.Launch.Banks[bank]
	switch {
	case offset%int64(min(len(to), 4)) != 0:
		x.fail(MisalignedAddress, lane, uint64(offset), "")
	case !b.Valid || offset < 0 || offset+int64(len(to)) > int64(b.Size):
		x.fail(BadConstant, lane, uint64(offset), "")
	default:
		if err := x.b.Launch.Memory.Load(b.Addr+uint64(offset), to); err != nil {
			x.refused(BadAddress, lane, b.Addr+uint64(offset), "constant buffer", err)
		}
	}
}

// f32 returns a source with its signs, and with denormals flushed if the form says so.
func (x *exec) f32(src, lane int) float32 {
	v := &x.in.Src[src]
	bits := x.u32(src, lane)
	if x.flushes() {
		bits = flush(bits)
	}
	if v.Abs {
		bits &^= 1 << 31
	}
	if v.Neg {
		bits ^= 1 << 31
	}
	return math.Float32frombits(bits)
}

func (x *exec) flushes() bool { return x.in.Mod[isa.Ftz] != 0 || x.in.Mod[isa.Fmz] != 0 }

// f64 returns a source of 64 bits with its signs.
func (x *exec) f64(src, lane int) float64 {
	v := &x.in.Src[src]
	bits := x.u64(src, lane)
	if v.Abs {
		bits &^= 1 << 63
	}
	if v.Neg {
		bits ^= 1 << 63
	}
	return math.Float64frombits(bits)
}

// predicate returns the lanes in which a predicate source is true.
func (x *exec) predicate(v *isa.Operand) uint32 {
	if v.Not {
		return ^x.w.Preds[v.Reg]
	}
	return x.w.Preds[v.Reg]
}

// set writes the result.
func (x *exec) set(lane int, v uint32) { x.setReg(x.in.Dst.Reg, lane, v) }

func (x *exec) setReg(reg uint8, lane int, v uint32) {
	if reg != isa.Zero && x.fault == nil {
		x.w.Regs[reg][lane] = v
	}
}

func (x *exec) set64(lane int, v uint64) {
	if reg := x.in.Dst.Reg; reg != isa.Zero {
		x.setReg(reg, lane, uint32(v))
		x.setReg(reg+1, lane, uint32(v>>32))
	}
}

// setF32 writes a float result: saturated, flushed, and with the one NaN that the hardware has.
func (x *exec) setF32(lane int, v float32) {
	if x.in.Mod[isa.Sat] != 0 {
		v = float32(saturate(float64(v)))
	}
	bits := canonical(v)
	if x.flushes() {
		bits = flush(bits)
	}
	x.set(lane, bits)
}

func (x *exec) setF64(lane int, v float64) { x.set64(lane, canonical64(v)) }

// setPred writes result n of the predicates.
func (x *exec) setPred(n, lane int, v bool) {
	if p := x.in.PDst[n]; p != isa.True && x.fault == nil {
		setBit(&x.w.Preds[p], lane, v)
	}
}

func setBit(mask *uint32, lane int, v bool) {
	*mask &^= 1 << lane
	if v {
		*mask |= 1 << lane
	}
}

func (x *exec) has(m isa.Mod) bool { return x.in.Mod[m] != 0 }
