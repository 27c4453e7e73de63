package compile

import (
	"errors"
	"fmt"
	"strings"
)

// Options are what a program is compiled for, and how much it may cost.
type Options struct {
	Entry uint32
	// Grid and Block are the sizes of the launch. They give ranges to the numbers of threads and blocks.
	Grid, Block [3]uint32
	// Of the launch, in bytes. Windows of global addresses have no pages.
	LocalPos, LocalNeg uint32

	MaxBlocks       int // copies of straight code; zero is a default
	MaxInstructions int // that the program can reach; zero is a default
	MaxText         int // bytes of IR; zero is a default
}

const (
	defaultBlocks       = 200
	defaultInstructions = 4096
	defaultText         = 1 << 20
	// maxVisits of all blocks bounds the time of an analysis.
	maxVisits = 20000
)

// Program is the result.
type Program struct {
	IR      string
	Entries []Entrance
	Sites   []Site
	// Missing counts, by form, the places in the program that are left to another executor.
	Missing map[string]int
	Blocks  int
}

// An Entrance is where the function can start.
type Entrance struct {
	PC    uint32
	Stack []Entry
	Full  bool // all lanes must be active
}

type translator struct {
	front   FrontEnd
	options Options
	code    map[uint32]*Instruction // nil: none
	leaders map[uint32]bool

	blocks     []*block
	byKey      map[string]*block
	prior      map[string]*block // of the analysis before
	queue      []*block
	generic    bool // whatever happens outside of the code, blocks can start after it
	incomplete bool // the analysis has not seen all ways through the program
	locks      bool
	visits     int

	inconsistent bool
	sites        []Site
	missing      map[string]int
	declared     map[string]bool
	constants    map[constant]int
	read         slotSet // by any instruction of the program
}

// Compile translates a program.
func Compile(front FrontEnd, o Options) (*Program, error) {
	if o.MaxBlocks == 0 {
		o.MaxBlocks = defaultBlocks
	}
	if o.MaxInstructions == 0 {
		o.MaxInstructions = defaultInstructions
	}
	if o.MaxText == 0 {
		o.MaxText = defaultText
	}
	for i := range 3 {
		if o.Block[i] == 0 || o.Grid[i] == 0 {
			return nil, fmt.Errorf("grid %v of blocks %v: want sizes of at least 1", o.Grid, o.Block)
		}
	}
	t := &translator{front: front, options: o, code: make(map[uint32]*Instruction), declared: make(map[string]bool), constants: make(map[constant]int)}
	if err := t.scan(); err != nil {
		return nil, err
	}
	if err := t.settle(); err != nil {
		return nil, err
	}
	text := t.module()
	if len(text) > o.MaxText {
		return nil, fmt.Errorf("%d bytes of IR: want at most %d", len(text), o.MaxText)
	}
	if t.inconsistent {
		return nil, errors.New("the analysis and the emission differ: this is an error of package compile")
	}
	p := &Program{IR: text, Sites: t.sites, Missing: t.missing, Blocks: len(t.blocks)}
	for _, k := range t.starting() {
		p.Entries = append(p.Entries, Entrance{k.pc, k.stack, k.full})
	}
	return p, nil
}

// maxPasses bounds how often the analysis starts again.
const maxPasses = 8

// settle repeats the analysis until what it took to be live is all that is. It first takes nothing to be
// live for lanes that wait: the other way round, each partial write would make a vector, each vector
// diverges, and the copies of blocks would never end.
func (t *translator) settle() error {
	for range maxPasses {
		if err := t.analyse(); err != nil {
			return err
		}
		if t.incomplete && !t.generic {
			t.generic = true // once more
			continue
		}
		if t.findLive() {
			return nil
		}
		t.prior = t.byKey
	}
	return fmt.Errorf("what is live is not known after %d passes", maxPasses)
}

// scan finds the instructions that can be reached, and those that others jump to.
func (t *translator) scan() error {
	t.leaders = map[uint32]bool{t.options.Entry: true}
	todo := []uint32{t.options.Entry}
	for len(todo) > 0 {
		pc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for {
			if _, ok := t.code[pc]; ok {
				break
			}
			if len(t.code) >= t.options.MaxInstructions {
				return fmt.Errorf("more than %d instructions can be reached", t.options.MaxInstructions)
			}
			in, ok := t.front.Decode(pc)
			if !ok {
				t.code[pc] = nil
				break
			}
			t.code[pc] = &in
			t.locks = t.locks || in.Locks
			t.read = t.read.or(setOf(in.Reads))
			if in.Reads == nil || in.Flow == Elsewhere { // there may be more of it than can be found
				t.read = allSlots
			}
			if in.Flow == Branch || in.Flow == Push {
				t.leaders[in.Target] = true
				todo = append(todo, in.Target)
			}
			if in.Guard.Always && (in.Flow == Branch || in.Flow == Leave || in.Flow == Exit) {
				break
			}
			pc = in.Next
		}
	}
	return nil
}

func (t *translator) decode(pc uint32) *Instruction {
	if in, ok := t.code[pc]; ok {
		return in
	}
	in, ok := t.front.Decode(pc)
	if !ok {
		t.code[pc] = nil
		return nil
	}
	t.code[pc] = &in
	return &in
}

// analyse repeats the blocks until what is known at their starts no longer changes.
func (t *translator) analyse() error {
	t.blocks, t.byKey, t.queue = nil, make(map[string]*block), nil
	t.incomplete, t.visits, t.missing = false, 0, make(map[string]int)
	for _, full := range []bool{true, false} {
		k := t.block(t.options.Entry, nil, full)
		k.starts = true
		t.flow(k, allSlots, unknown)
	}
	b := &Builder{t: t}
	for len(t.queue) > 0 {
		k := t.queue[len(t.queue)-1]
		t.queue = t.queue[:len(t.queue)-1]
		k.queued = false
		if t.visits++; t.visits > maxVisits {
			return fmt.Errorf("the analysis does not end after %d blocks", maxVisits)
		}
		b.walk(k)
	}
	return nil
}

// block returns the block of a state of control, nil if there are too many.
func (t *translator) block(pc uint32, stack []Entry, full bool) *block {
	key := keyOf(pc, stack, full)
	if k := t.byKey[key]; k != nil {
		return k
	}
	if len(t.blocks) >= t.options.MaxBlocks {
		return nil
	}
	k := &block{number: len(t.blocks), pc: pc, stack: stack[:len(stack):len(stack)], full: full, start: t.read, all: t.read}
	if old := t.prior[key]; old != nil {
		k.end, k.start, k.parked, k.known = old.end, old.start, old.parked, true
	}
	for i := range k.entry {
		k.entry[i] = anyKind(slotWidth(Slot(i)))
	}
	t.blocks = append(t.blocks, k)
	t.byKey[key] = k
	return k
}

// flow joins values to what is known at the start of a block.
func (t *translator) flow(k *block, live slotSet, value func(Slot) *Value) {
	changed := k.joins == 0
	for i := range Slot(Slots) {
		if !live.has(i) {
			continue
		}
		old, now := k.entry[i], value(i).Kind
		if k.joins > 0 {
			now = old.join(now)
			if k.joins > 3 {
				now = now.widen(old, slotWidth(i))
			}
		}
		if now = now.normal(); now != old {
			k.entry[i], changed = now, true
		}
	}
	for p := range k.wide {
		old := k.wide[p]
		low := Slot(2 * p)
		var now wideKind
		if w := wideOf(value(low), value(low+1)); w != nil && live.has(low) && live.has(low+1) {
			now = wideKind{w.Kind, true}
		}
		if k.joins > 0 {
			now = old.join(now)
			if k.joins > 3 {
				now.Kind = now.widen(old.Kind, 64)
			}
		}
		if !now.ok {
			now = wideKind{}
		}
		if now != old {
			k.wide[p], changed = now, true
		}
	}
	k.joins++
	if changed && !k.queued {
		k.queued = true
		t.queue = append(t.queue, k)
	}
}

// startAt lets the function start at a block.
func (t *translator) startAt(k *block) {
	if k.starts {
		return
	}
	k.starts = true
	if t.generic {
		t.flow(k, allSlots, unknown)
	}
}

// unknown is a slot of which nothing is known.
func unknown(i Slot) *Value { return &Value{Kind: anyKind(slotWidth(i)), width: slotWidth(i)} }

func (t *translator) starting() (out []*block) {
	for _, k := range t.blocks {
		if k.starts {
			out = append(out, k)
		}
	}
	return out
}

func (t *translator) count(form string) { t.missing[form]++ }

// intrinsic declares a function of IR.
func (t *translator) intrinsic(format string, args ...any) {
	t.declared["declare "+fmt.Sprintf(format, args...)] = true
}

func (k *block) label() string { return fmt.Sprintf("b%d", k.number) }

// module makes the text.
func (t *translator) module() string {
	b := &Builder{t: t, emit: true}
	t.missing = make(map[string]int)
	b.prologue()
	for _, k := range t.blocks {
		b.walk(k)
	}
	b.do("}")
	var s strings.Builder
	s.WriteString(b.out.String())
	for d := range t.declared {
		s.WriteString(d + "\n")
	}
	s.WriteString(helpers)
	return s.String()
}
