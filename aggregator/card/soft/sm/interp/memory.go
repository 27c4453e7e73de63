package interp

import (
	"encoding/binary"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	laneOps[isa.Load] = func(x *exec, lane int) { x.load(lane) }
	laneOps[isa.Store] = func(x *exec, lane int) { x.store(lane) }
	laneOps[isa.LoadLock] = (*exec).loadLock
	laneOps[isa.StoreUnlock] = (*exec).storeUnlock
}

// address adds a memory operand's base and offset.
func (x *exec) address(lane int) uint64 {
	v := &x.in.Src[0]
	if v.Count == 2 {
		return x.pair(v.Reg, lane) + uint64(v.Value)
	}
	return uint64(x.w.Regs[v.Reg][lane] + uint32(v.Value))
}

// space finds out which memory a load or store reaches: a global address may be in a window.
func (x *exec) space(lane int) (space isa.Space, addr uint64) {
	space, addr = x.in.Src[0].Space, x.address(lane)
	if l := x.b.Launch; space == isa.Global {
		switch {
		case l.SharedWindow != 0 && addr-uint64(l.SharedWindow) < windowSize:
			return isa.Shared, addr - uint64(l.SharedWindow)
		case l.LocalWindow != 0 && addr-uint64(l.LocalWindow) < windowSize:
			return isa.Local, addr - uint64(l.LocalWindow)
		}
	}
	return space, addr
}

// place resolves an address of a load or store to bytes of shared memory, or to an address of
// Memory if the bytes are nil. It reports whether the access is allowed.
func (x *exec) place(lane, size int) (shared []byte, addr uint64, ok bool) {
	space, addr := x.space(lane)
	if addr%uint64(size) != 0 {
		x.fail(MisalignedAddress, lane, addr, "")
		return nil, addr, false
	}
	switch space {
	case isa.Shared:
		addr &= windowSize - 1
		if ok = addr+uint64(size) <= uint64(len(x.b.Shared)); ok {
			shared = x.b.Shared[addr:][:size]
		}
	case isa.Local:
		addr, ok = x.local(lane, addr&(windowSize-1), uint64(size))
	default:
		ok = true
	}
	if !ok {
		x.fail(BadAddress, lane, addr, "")
	}
	return shared, addr, ok
}

// local returns where a lane's local memory is kept: the negative part, at the end of the
// addresses, follows the positive one.
func (x *exec) local(lane int, addr, size uint64) (uint64, bool) {
	l := x.b.Launch
	pos, neg := uint64(l.LocalPos), uint64(l.LocalNeg)
	at := addr
	switch {
	case addr >= windowSize-neg:
		at = addr - (windowSize - neg) + pos
	case addr+size > pos:
		return addr, false
	}
	if at+size > pos+neg {
		return addr, false
	}
	return l.Local + uint64(x.warp*Lanes+lane)*l.LocalStride() + at, true
}

// load reports whether it was allowed.
func (x *exec) load(lane int) bool {
	width := x.in.Mod[isa.Width]
	buf := &x.b.bytes
	*buf = [16]byte{}
	to := buf[:x.in.Bytes()]
	if x.in.Src[0].Space == isa.ConstBank {
		x.constant(lane, x.in.Src[0].Bank, int64(x.address(lane)&0xffff), to)
	} else if own, addr, ok := x.place(lane, len(to)); !ok {
		return false
	} else if own != nil {
		copy(to, own)
	} else if err := x.b.Launch.Memory.Load(addr, to); err != nil {
		x.refused(BadAddress, lane, addr, "load", err)
	}
	if x.fault != nil {
		return false
	}
	v := binary.LittleEndian.Uint32(buf[:])
	switch width {
	case isa.S8:
		v = uint32(int32(int8(v)))
	case isa.S16:
		v = uint32(int32(int16(v)))
	}
	x.set(lane, v)
	for i := 4; i < len(to) && x.in.Dst.Reg != isa.Zero; i += 4 {
		x.setReg(x.in.Dst.Reg+uint8(i/4), lane, binary.LittleEndian.Uint32(buf[i:]))
	}
	return true
}

func (x *exec) store(lane int) bool {
	buf := &x.b.bytes
	*buf = [16]byte{}
	from := buf[:x.in.Bytes()]
	if r := x.in.Src[1].Reg; r != isa.Zero {
		for i := 0; i < len(from); i += 4 {
			binary.LittleEndian.PutUint32(buf[i:], x.w.Regs[r+uint8(i/4)][lane])
		}
	}
	own, addr, ok := x.place(lane, len(from))
	if !ok {
		return false
	}
	if own != nil {
		copy(own, from)
	} else if err := x.b.Launch.Memory.Store(addr, from); err != nil {
		x.refused(BadAddress, lane, addr, "store", err)
	}
	return x.fault == nil
}

// maxLocks is how many locks the threads of a block can hold: one each. An instruction looks
// through them all.
const maxLocks = 1024

// loadLock loads, and takes the lock of the word for one lane: that lane's predicate is true.
func (x *exec) loadLock(lane int) {
	if x.in.Src[0].Space != isa.Shared {
		x.fail(NotImplemented, lane, 0, "lock of global memory")
		return
	}
	if !x.load(lane) {
		return
	}
	addr := lockOf(x.address(lane))
	taken := len(x.b.Locks) >= maxLocks || slices.ContainsFunc(x.b.Locks, func(l Lock) bool { return l.Addr == addr })
	if !taken {
		x.b.Locks = append(x.b.Locks, Lock{addr, x.warp, uint8(lane)})
	}
	x.setPred(0, lane, !taken)
}

// storeUnlock stores, and drops the lock if the lane holds it.
func (x *exec) storeUnlock(lane int) {
	if x.in.Src[0].Space != isa.Shared {
		x.fail(NotImplemented, lane, 0, "lock of global memory")
		return
	}
	if x.store(lane) {
		held := Lock{lockOf(x.address(lane)), x.warp, uint8(lane)}
		x.b.unlock(func(l Lock) bool { return l == held })
	}
}

func lockOf(addr uint64) uint32 { return uint32(addr) & (windowSize - 1) &^ 3 }

func (b *Block) unlock(drop func(Lock) bool) { b.Locks = slices.DeleteFunc(b.Locks, drop) }
