package compile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
)

// Options are what a program is compiled for, and how much it may cost.
type Options struct {
	Entry uint32
	// Block is the size of the launch's blocks, and Grid bounds that of its grid. They give ranges to the
	// numbers of threads and blocks.
	Grid, Block [3]uint32
	// Of the launch, in bytes. Windows of global addresses have no pages.
	LocalPos, LocalNeg uint32

	// Constant, if not nil, reads a constant of the launch. The code serves launches whose constants are not
	// much larger, see Program.Constants.
	Constant func(bank uint8, offset int64) (uint32, bool)

	// Fill is what registers have that nobody wrote, for tests. Zero is whatever the processor has.
	Fill uint32

	MaxBlocks       int // copies of straight code; zero is a default
	MaxInstructions int // that the program can reach; zero is a default
	MaxText         int // bytes of IR; zero is a default
}

const (
	defaultBlocks       = 200
	defaultInstructions = 4096
	defaultText         = 4 << 20
)

// Program is the result.
type Program struct {
	IR    string
	Clear uint64 // registers that may be read before they are written
	// Constants are those that the context has to have. One that is more than it was taken to be does not let
	// the function start.
	Constants []Constant
	// Partial and Full are the entrances of new warps, state.Unknown if there are no such warps.
	Partial, Full uint32
	Entries       []Entrance
	Sites         []Site
	// Missing counts, by form, the places in the program that are left to another executor.
	Missing map[string]int
	Blocks  int
}

// A Constant is a word of a constant buffer, and the most that it is taken to be.
type Constant struct {
	Bank   uint8
	Offset int64
	Max    uint32
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
	kernel  bool                    // the code is that of one thread, see Kernel
	code    map[uint32]*Instruction // nil: none
	leaders map[uint32]bool

	blocks     []*block
	first      [2]*block // of partial warps and full ones
	byKey      map[string]*block
	prior      map[string]*block // of the analysis before
	queue      []*block
	generic    bool // whatever happens outside of the code, blocks can start after it
	incomplete bool // the analysis has not seen all ways through the program
	locks      bool
	visits     int

	inconsistent bool
	sites        []Site
	next         map[int]*block // where the way goes on behind a site
	missing      map[string]int
	declared     map[string]bool
	places       map[string]bool // memory of the function, as declarations
	constants    map[constant]int
	limits       []Constant
	bounds       map[constant]uint64
	read         slotSet // by any instruction of the program
}

// translate makes the text.
func translate(front FrontEnd, o Options, kernel bool) (*translator, string, error) {
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
			return nil, "", fmt.Errorf("grid %v of blocks %v: want sizes of at least 1", o.Grid, o.Block)
		}
	}
	t := &translator{front: front, options: o, kernel: kernel, code: make(map[uint32]*Instruction), declared: make(map[string]bool), constants: make(map[constant]int), bounds: make(map[constant]uint64)}
	if err := t.scan(); err != nil {
		return nil, "", err
	}
	if err := t.settle(); err != nil {
		return nil, "", err
	}
	text := t.module()
	if len(text) > o.MaxText {
		return nil, "", fmt.Errorf("%d bytes of IR: want at most %d", len(text), o.MaxText)
	}
	if t.inconsistent {
		return nil, "", errors.New("the analysis and the emission differ: this is an error of package compile")
	}
	return t, text, nil
}

// Compile translates a program.
func Compile(front FrontEnd, o Options) (*Program, error) {
	t, text, err := translate(front, o, false)
	if err != nil {
		return nil, err
	}
	p := &Program{IR: text, Constants: t.limits, Sites: t.sites, Missing: t.missing, Blocks: len(t.blocks)}
	number := make(map[*block]int)
	for n, k := range t.starting() {
		p.Entries = append(p.Entries, Entrance{k.pc, k.stack, k.full})
		number[k] = n
	}
	for i, to := range []*uint32{&p.Partial, &p.Full} {
		*to = state.Unknown
		if k := t.first[i]; k != nil {
			*to = uint32(number[k])
			p.Clear |= k.start[0]
		}
	}
	for n, k := range t.next {
		p.Sites[n].Next = number[k]
	}
	return p, nil
}

// startAt lets the function start at a block.
func (t *translator) startAt(k *block) {
	if k.starts {
		return
	}
	k.starts = true
	if t.generic {
		t.flow(k, allSlots, t.unknown)
	}
}

// resumeAt is called behind the emission of a site after which the function goes on at a block.
func (t *translator) resumeAt(k *block) {
	if n := len(t.sites); n > 0 && t.next != nil {
		t.next[n-1] = k
	}
}

// unknown is a slot of which nothing is known.
func (t *translator) unknown(i Slot) *Value {
	k := anyKind(slotWidth(i))
	if t.kernel {
		k.Shape = Uniform
	}
	return &Value{Kind: k, width: slotWidth(i)}
}

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
	t.missing, t.places, t.next = make(map[string]int), make(map[string]bool), make(map[int]*block)
	if t.kernel {
		b.kernelPrologue()
	} else {
		b.prologue()
	}
	for _, k := range t.blocks {
		b.walk(k)
	}
	b.do("}")
	var s strings.Builder
	before, after, _ := strings.Cut(b.out.String(), places)
	s.WriteString(before)
	for _, p := range slices.Sorted(maps.Keys(t.places)) {
		s.WriteString(p + "\n")
		if fill := t.options.Fill; fill != 0 {
			name, typ, _ := strings.Cut(p, " = alloca ")
			v := map[string]string{"i1": fmt.Sprint(fill&1 != 0), "i32": fmt.Sprint(fill), "i64": fmt.Sprint(uint64(fill) << 13), "<32 x i32>": steps(32, uint64(fill), 77)}[typ]
			fmt.Fprintf(&s, "store %s %s, ptr %s\n", typ, v, name)
		}
	}
	s.WriteString(after)
	for _, d := range slices.Sorted(maps.Keys(t.declared)) { // the same program has the same text
		s.WriteString(d + "\n")
	}
	s.WriteString(pick(t.kernel, t.kernelEpilogue, common)())
	return s.String()
}
