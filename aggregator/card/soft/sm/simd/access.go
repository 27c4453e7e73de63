package simd

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	plans[isa.Load] = func(o *operation) bool {
		if o.dst == isa.Zero || !o.accesses() {
			return false
		}
		o.run = runLoad
		if o.Src[0].Space == isa.Shared {
			o.run = runLoadShared
		}
		return true
	}
	plans[isa.Store] = func(o *operation) bool {
		if !o.accesses() || o.Src[0].Space == isa.ConstBank {
			return false
		}
		o.run = runStore
		if o.Src[0].Space == isa.Shared {
			o.run = runStoreShared
		}
		return true
	}
}

// access describes a load, a store or an atomic.
type access struct {
	size   uint64 // bytes of a lane
	words  int    // registers
	extend uint   // shift that extends the sign, and clears what is not loaded
	signed bool
}

// accesses fills in the access. It reports false if the space has no fast way.
func (o *operation) accesses() bool {
	switch o.Src[0].Space {
	case isa.Global, isa.Shared, isa.Local, isa.ConstBank:
	default:
		return false
	}
	o.cost = costPage
	n, w := o.Bytes(), o.Mod[isa.Width]
	o.access = access{size: uint64(n), words: max(1, n/4)}
	o.access.signed = w == isa.S8 || w == isa.S16
	if o.access.size < 4 {
		o.access.extend = 32 - 8*uint(o.access.size)
	}
	return true
}

// addresses computes where in the address space the lanes of an access are. It reports false if one
// is misaligned, not allowed, or in a window of other memory.
func (x *Executor) addresses(o *operation) bool {
	v := &o.Src[0]
	low, high := &x.w.Regs[v.Reg&isa.Zero], &zeros
	if v.Count == 2 && v.Reg != isa.Zero {
		high = &x.w.Regs[(v.Reg+1)&isa.Zero]
	}
	wide, offset := v.Count == 2, uint64(v.Value)
	if !wide {
		offset &= 1<<32 - 1
	}
	size := o.access.size
	lanes := x.lanes
	var odd uint64
	var window uint32
	for i := range x.addr {
		if lanes>>i&1 == 0 {
			continue
		}
		a := uint64(low[i]) | uint64(high[i])<<32
		if a += offset; !wide {
			a &= 1<<32 - 1
		}
		x.addr[i] = a
		odd |= a
		window |= bit(a-x.windows[0] < windowSize) | bit(a-x.windows[1] < windowSize)
	}
	if odd&(size-1) != 0 {
		return false
	}
	switch v.Space {
	case isa.Global:
		return window == 0
	case isa.Local:
		return x.localAddresses(size)
	}
	return x.constantAddresses(v.Bank, size)
}

const windowSize = 1 << 24

// noWindow is where no address of a window is.
const noWindow = 1 << 63

func window(at uint32) uint64 {
	if at == 0 {
		return noWindow
	}
	return uint64(at)
}

// localAddresses turns addresses of local memory into where it is kept: the part at the end of the
// addresses follows the one at their start.
func (x *Executor) localAddresses(size uint64) bool {
	l := x.launch
	pos, neg := uint64(l.LocalPos), uint64(l.LocalNeg)
	stride := l.LocalStride()
	for i := range x.addr {
		if x.lanes>>i&1 == 0 {
			continue
		}
		at := x.addr[i] & (windowSize - 1)
		if at >= windowSize-neg {
			at += pos + neg - windowSize
		} else if at+size > pos {
			return false
		}
		if at+size > pos+neg {
			return false
		}
		x.addr[i] = l.Local + uint64(x.warp*interp.Lanes+i)*stride + at
	}
	return true
}

func (x *Executor) constantAddresses(bank uint8, size uint64) bool {
	b := &x.launch.Banks[bank&31]
	for i := range x.addr {
		if x.lanes>>i&1 == 0 {
			continue
		}
		at := x.addr[i] & 0xffff
		if !b.Valid || at+size > uint64(b.Size) {
			return false
		}
		x.addr[i] = b.Addr + at
	}
	return true
}

// together finds a global access of all lanes to one piece of memory, in their order. It returns its
// address; the distance of the lanes is the access's size, or zero if all access the same place.
func (x *Executor) together(o *operation) (addr, step uint64, ok bool) {
	v, size := &o.Src[0], o.access.size
	if v.Space != isa.Global || x.lanes != allLanes {
		return 0, 0, false
	}
	low := &x.w.Regs[v.Reg&isa.Zero]
	addr = uint64(low[0])
	if step = size; low[1] == low[0] {
		step = 0
	}
	if !fast.sequence(low, uint32(step)) || addr+(interp.Lanes-1)*step >= 1<<32 {
		return 0, 0, false
	}
	if v.Count == 1 {
		addr = uint64(uint32(addr) + uint32(v.Value))
	} else if v.Reg != isa.Zero {
		high := &x.w.Regs[(v.Reg+1)&isa.Zero]
		if !fast.sequence(high, 0) {
			return 0, 0, false
		}
		addr |= uint64(high[0]) << 32
	}
	if v.Count == 2 {
		addr += uint64(v.Value)
	}
	last := addr + (interp.Lanes-1)*step
	for _, base := range x.windows {
		if addr-base < windowSize || last-base < windowSize {
			return 0, 0, false
		}
	}
	return addr, step, addr&(size-1) == 0 && (v.Count == 2 || last < 1<<32)
}

func runLoad(x *Executor, o *operation) bool {
	size := int(o.access.size)
	if addr, step, ok := x.together(o); ok {
		if b := x.memory.at(addr, (interp.Lanes-1)*int(step)+size, false); b != nil {
			if size == 4 {
				d := x.result(o.dst, 0)
				if step == 0 {
					fill(d, binary.LittleEndian.Uint32(b))
				} else {
					loadRow(d, b)
				}
				x.merge(o.dst, d)
				return true
			}
			for i := range interp.Lanes {
				x.load(o, i, b[i*int(step):])
			}
			return x.loaded(o)
		}
	}
	if !x.addresses(o) {
		return false
	}
	d, lanes := &x.scratch[0], x.lanes
	var page []byte
	last := ^uint64(0)
	for i, a := range x.addr {
		if lanes>>i&1 == 0 {
			continue
		}
		if a>>12 != last {
			last = a >> 12
			page = x.memory.page(last, false)
		}
		at := int(a & pageMask)
		if at+size > len(page) {
			return false
		}
		if size == 4 {
			d[i] = binary.LittleEndian.Uint32(page[at:])
		} else {
			x.load(o, i, page[at:])
		}
	}
	return x.loaded(o)
}

// load takes a lane's value of memory to the scratch rows.
func (x *Executor) load(o *operation, lane int, b []byte) {
	switch o.access.size {
	case 4:
		x.scratch[0][lane&31] = binary.LittleEndian.Uint32(b)
	case 1, 2:
		v := uint32(b[0])
		if o.access.size == 2 {
			v = uint32(binary.LittleEndian.Uint16(b))
		}
		if n := o.access.extend; o.access.signed {
			v = uint32(int32(v<<n) >> n)
		}
		x.scratch[0][lane&31] = v
	default:
		for j := range o.access.words {
			x.scratch[j&3][lane&31] = binary.LittleEndian.Uint32(b[4*j:])
		}
	}
}

// loaded writes the scratch rows to the registers.
func (x *Executor) loaded(o *operation) bool {
	for j := range o.access.words {
		x.put(&x.w.Regs[(o.dst+uint8(j))&isa.Zero], &x.scratch[j&3])
	}
	return true
}

// stored returns the row of word j of what is stored.
func (x *Executor) stored(o *operation, j int) *row {
	if r := o.Src[1].Reg; r != isa.Zero {
		return &x.w.Regs[(r+uint8(j))&isa.Zero]
	}
	return &zeros
}

// runStore stores lanes in order. If one is not allowed, the others are stored again lane by lane.
func runStore(x *Executor, o *operation) bool {
	size := int(o.access.size)
	if size == 4 {
		if addr, step, ok := x.together(o); ok && step != 0 {
			if b := x.memory.at(addr, interp.Lanes*size, true); b != nil {
				storeRow(b, x.stored(o, 0))
				return true
			}
		}
	}
	if !x.addresses(o) {
		return false
	}
	from, lanes := x.stored(o, 0), x.lanes
	var page []byte
	last := ^uint64(0)
	for i, a := range x.addr {
		if lanes>>i&1 == 0 {
			continue
		}
		if a>>12 != last {
			last = a >> 12
			page = x.memory.page(last, true)
		}
		at := int(a & pageMask)
		if at+size > len(page) {
			return false
		}
		if size == 4 {
			binary.LittleEndian.PutUint32(page[at:], from[i])
		} else {
			x.store(o, i, page[at:])
		}
	}
	return true
}

func (x *Executor) store(o *operation, lane int, b []byte) {
	switch v := x.stored(o, 0)[lane&31]; o.access.size {
	case 4:
		binary.LittleEndian.PutUint32(b, v)
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	default:
		for j := range o.access.words {
			binary.LittleEndian.PutUint32(b[4*j:], x.stored(o, j)[lane&31])
		}
	}
}

// sharedTogether is together for shared memory.
func (x *Executor) sharedTogether(o *operation) []byte {
	base := &x.w.Regs[o.Src[0].Reg&isa.Zero]
	if o.access.size != 4 || x.lanes != allLanes || !fast.sequence(base, 4) {
		return nil
	}
	at, size := (base[0]+uint32(o.Src[0].Value))&(windowSize-1), uint32(4*interp.Lanes)
	if at%4 != 0 || at+size > uint32(len(x.block.Shared)) {
		return nil
	}
	return x.block.Shared[at:][:size]
}

// shared computes where in the block's shared memory the lanes are; see addresses.
func (x *Executor) shared(o *operation) bool {
	base, offset, size := &x.w.Regs[o.Src[0].Reg&isa.Zero], uint32(o.Src[0].Value), uint32(o.access.size)
	end := uint32(len(x.block.Shared))
	var bad uint32
	for i := range x.addr {
		if x.lanes>>i&1 == 0 {
			continue
		}
		a := base[i] + offset
		bad |= a & (size - 1)
		a &= windowSize - 1
		bad |= bit(a+size > end)
		x.addr[i] = uint64(a)
	}
	return bad == 0
}

func runLoadShared(x *Executor, o *operation) bool {
	if b := x.sharedTogether(o); b != nil {
		d := x.result(o.dst, 0)
		loadRow(d, b)
		x.merge(o.dst, d)
		return true
	}
	if !x.shared(o) {
		return false
	}
	d, lanes, shared := &x.scratch[0], x.lanes, x.block.Shared
	for i, a := range x.addr {
		switch {
		case lanes>>i&1 == 0:
		case o.access.size == 4:
			d[i] = binary.LittleEndian.Uint32(shared[a:])
		default:
			x.load(o, i, shared[a:])
		}
	}
	return x.loaded(o)
}

func runStoreShared(x *Executor, o *operation) bool {
	if b := x.sharedTogether(o); b != nil {
		storeRow(b, x.stored(o, 0))
		return true
	}
	if !x.shared(o) {
		return false
	}
	for i := range x.addr {
		if x.lanes>>i&1 != 0 {
			x.store(o, i, x.block.Shared[x.addr[i]:])
		}
	}
	return true
}
