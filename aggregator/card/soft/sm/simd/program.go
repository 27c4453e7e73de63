package simd

import (
	"encoding/binary"
	"iter"
	"maps"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// An operation is a decoded instruction.
type operation struct {
	*interp.Code
	run    func(x *Executor, o *operation) bool // false, or nil: nothing was done, execute it lane by lane
	rows   rowOp
	lane   func(a, b, c uint32) uint32
	params params
	src    [3]source
	high   *[3]source // the upper halves of sources of 64 bits
	access access
	atomic func(old, v, other uint32) uint32
	unless uint32 // all ones: the guard is inverted
	size   uint32
	runs   uint64 // in this launch
	cost   uint16
	slow   uint16 // cost lane by lane
	guard  uint8
	dst    uint8
	stops  bool // the warp may not run after it
}

// rowOp computes a row of rows. d may be one of the others.
type rowOp func(d, a, b, c *row, p *params)

// params are what an operation on rows takes beside the rows. The mask and then the inversion of
// a source are how signs are applied.
type params struct {
	and, xor [3]uint32
	plus     uint32
	shift    uint32
	ftz, sat bool
}

// A source is a register, a row of one value, or a constant with the row of its last value.
type source struct {
	row        *row // nil: register reg
	reg        uint8
	constant   bool
	bank       uint8
	offset     int64
	generation uint64
	bytes      []byte // at bank and offset, in this generation
}

// cache keeps decoded instructions by what they are: the word, and its place, to which branches are
// relative. So code may change between launches.
type cache struct {
	operations map[word]*operation
	generation uint64 // of memory: counts Executor.Begin
}

type word struct {
	bits uint64
	pc   uint32
}

// maxCached is how many operations are kept, some 8 MiB.
const maxCached = 8192

// operation returns the one of a word that was fetched. If there are too many it drops them all, also
// from the table.
func (x *Executor) operation(at word) *operation {
	c := &x.cache
	if o := c.operations[at]; o != nil {
		return o
	}
	if len(c.operations) >= maxCached {
		x.forgetCode()
		c.operations = nil
	}
	if c.operations == nil {
		c.operations = make(map[word]*operation)
	}
	o := newOperation(interp.NewCode(at.bits, at.pc))
	c.operations[at] = o
	return o
}

func newOperation(c *interp.Code) *operation {
	o := &operation{Code: c, guard: c.Guard.Pred, size: uint32(c.Size), dst: c.Dst.Reg, cost: costRow, slow: costLane}
	if c.Guard.Not {
		o.unless = allLanes
	}
	if c.Form == nil { // no instruction
		return o
	}
	for i := range o.src {
		o.src[i] = newSource(&c.Src[i], 0)
		o.params.and[i] = allLanes
	}
	if plan := plans[c.Op]; plan != nil && !plan(o) {
		o.run = nil
	}
	return o
}

// newSource resolves a word of a source: its first or its second.
func newSource(v *isa.Operand, n uint8) source {
	switch {
	case v.Kind == isa.Imm:
		s := source{row: new(row)}
		fill(s.row, uint32(v.Value>>(32*n)))
		return s
	case v.Kind == isa.Const:
		return source{row: new(row), constant: true, bank: v.Bank, offset: v.Value + 4*int64(n)}
	case v.Kind == isa.Reg && v.Reg != isa.Zero:
		return source{reg: v.Reg + n}
	}
	return source{reg: isa.Zero}
}

// plans choose, by operation, how to run an instruction; they return false if there is only the way
// lane by lane.
var plans [isa.NumOps]func(o *operation) bool

// table finds the operations of a program by address.
type table struct {
	pages map[uint32]*codePage
	spare []*codePage
	last  *codePage
	base  uint32               // of last
	ran   map[*isa.Form]uint64 // in pages that are no longer kept
}

const codePageSize = 4096

type codePage [codePageSize / 4]*operation

// maxCodePages is how many are kept, half a MiB.
const maxCodePages = 64

// at returns the operation at pc, nil if it has to be fetched.
func (t *table) at(pc uint32) *operation {
	if at := pc - t.base; at < codePageSize && at%4 == 0 && t.last != nil {
		return t.last[at/4]
	}
	return nil
}

// forget drops all pages, and their counts.
func (t *table) forget() {
	if t.pages == nil {
		t.pages = make(map[uint32]*codePage)
	}
	for _, p := range t.pages {
		t.spare = append(t.spare, p)
	}
	clear(t.pages)
	t.last, t.ran = nil, nil
}

func (t *table) newPage() *codePage {
	n := len(t.spare)
	if n == 0 {
		return new(codePage)
	}
	p := t.spare[n-1]
	t.spare, *p = t.spare[:n-1], codePage{}
	return p
}

// forgetCode drops all pages, and keeps their counts.
func (x *Executor) forgetCode() {
	ran := x.Ran()
	x.code.forget()
	x.code.ran = ran
}

// page makes the page at pc the last one.
func (x *Executor) page(pc uint32) *codePage {
	t := &x.code
	t.base = pc &^ (codePageSize - 1)
	if t.last = t.pages[t.base]; t.last == nil {
		if len(t.pages) >= maxCodePages {
			x.forgetCode()
		}
		t.last = t.newPage()
		t.pages[t.base] = t.last
	}
	return t.last
}

// fetch finds the operation at pc for the first time; nil if there is none.
func (x *Executor) fetch(pc uint32) *operation {
	if pc%4 != 0 {
		return nil
	}
	at := pc % codePageSize / 4
	if o := x.page(pc)[at]; o != nil {
		return o
	}
	bits, err := x.launch.Program.Word(pc)
	if err != nil {
		return nil
	}
	o := x.operation(word{bits, pc})
	if !o.Good(x.launch) {
		o = newOperation(o.Code)
		o.run = nil
	}
	o.runs = 0
	x.page(pc)[at] = o
	return o
}

// Ran counts the warp instructions of the launch, by form.
func (x *Executor) Ran() map[*isa.Form]uint64 {
	ran := maps.Clone(x.code.ran)
	if ran == nil {
		ran = make(map[*isa.Form]uint64)
	}
	for _, page := range x.code.pages {
		for _, o := range page {
			if o != nil && o.runs > 0 && o.Good(x.launch) {
				ran[o.Form] += o.runs
			}
		}
	}
	return ran
}

// Counts are the warp instructions of the launch so far, by instruction. Of large programs it has the code pages that the
// executor keeps.
func (x *Executor) Counts() iter.Seq2[uint32, Count] {
	return func(yield func(pc uint32, c Count) bool) {
		for base, page := range x.code.pages {
			for i, o := range page {
				if o != nil && o.runs > 0 && o.Good(x.launch) && !yield(base+4*uint32(i), Count{&o.Inst, o.runs}) {
					return
				}
			}
		}
	}
}

// A Count is how often an instruction ran, by warps.
type Count struct {
	*isa.Inst
	Runs uint64
}

// refresh makes the row of a constant have its value. It reports false if there is no such constant.
func (x *Executor) refresh(s *source) bool {
	if s.generation != x.cache.generation {
		b := &x.launch.Banks[s.bank&31]
		if s.offset%4 != 0 || !b.Valid || s.offset < 0 || s.offset+4 > int64(b.Size) {
			return false
		}
		if s.bytes = x.memory.at(b.Addr+uint64(s.offset), 4, false); s.bytes == nil {
			return false
		}
		s.generation = x.cache.generation
	}
	if v := binary.LittleEndian.Uint32(s.bytes); v != s.row[0] {
		fill(s.row, v)
	}
	return true
}

func fill(r *row, v uint32) {
	for i := range r {
		r[i] = v
	}
}
