package engine

import (
	"fmt"

	"github.com/ebitengine/purego"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/object"
)

// Code is the compiled program of a launch.
type Code struct {
	Program *compile.Program
	Size    int // bytes of machine code
	// Compiled and Interpreted count the warp instructions that ran, by who executed them.
	Compiled, Interpreted uint64

	launch  *interp.Launch
	pages   *Pages
	object  *object.Code
	run     uintptr
	starts  map[uint32][]int // entrances by program counter
	context compile.Context
}

// New compiles the program of a launch, whose memory the pages show.
func New(c *llvm.Compiler, l *interp.Launch, pages *Pages, o compile.Options, passes string) (*Code, error) {
	p, err := compile.Compile(&fermi.FrontEnd{Launch: l}, o)
	if err != nil {
		return nil, err
	}
	data, err := c.Compile(p.IR, passes)
	if err != nil {
		return nil, err
	}
	code, err := object.Load(data)
	if err != nil {
		return nil, err
	}
	x := &Code{Program: p, Size: code.Size(), launch: l, pages: pages, object: code, starts: make(map[uint32][]int)}
	if x.run, err = code.Symbol(compile.Function); err != nil {
		return nil, fmt.Errorf("compiled program: %w", err)
	}
	for n, e := range p.Entries {
		x.starts[e.PC] = append(x.starts[e.PC], n)
	}
	return x, nil
}

// Close drops the machine code.
func (x *Code) Close() error { return x.object.Unload() }

// start returns the entrance for the state of a warp, -1 if there is none.
func (x *Code) start(w *interp.Warp) int {
	for _, n := range x.starts[w.PC] {
		if fits(&x.Program.Entries[n], w) {
			return n
		}
	}
	return -1
}

func fits(e *compile.Entrance, w *interp.Warp) bool {
	if len(e.Stack) != len(w.Stack) || w.Active == 0 || e.Full != (w.Active == ^uint32(0)) {
		return false
	}
	for i, s := range e.Stack {
		v := &w.Stack[i]
		if s.Kind != compile.EntryKind(v.Kind) || s.Target != v.Target || s.Full && v.Lanes != ^uint32(0) {
			return false
		}
	}
	return true
}

// call runs the function on the context.
func (x *Code) call() { purego.SyscallN(x.run, addressOf(&x.context)) }
