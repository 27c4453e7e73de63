package engine

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/object"
)

// Code is a compiled program. It does not change: several runners may use it at once. It serves all launches
// of the program whose options are the same, but for grids that may be smaller.
type Code struct {
	Program *compile.Program
	Size    int // bytes of machine code

	support *Support
	object  *object.Code
	run     uintptr
	table   []byte
	starts  map[uint32][]int // entrances by program counter
}

// A Compiler makes an object file of IR.
type Compiler interface {
	Compile(ir, passes string) ([]byte, error)
}

// New compiles the program of a launch.
func New(c Compiler, s *Support, l *interp.Launch, o compile.Options, passes string) (*Code, error) {
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
	x := &Code{Program: p, Size: code.Size(), support: s, object: code, table: p.Table(), starts: make(map[uint32][]int)}
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

// start returns the entrance for the state of a warp, or state.Unknown.
func (x *Code) start(w *state.Warp) uint32 {
	for _, n := range x.starts[w.PC] {
		if fits(&x.Program.Entries[n], w) {
			return uint32(n)
		}
	}
	return state.Unknown
}

func fits(e *compile.Entrance, w *state.Warp) bool {
	if uint32(len(e.Stack)) != w.Depth || w.Active == 0 || e.Full != (w.Active == ^uint32(0)) {
		return false
	}
	for i, s := range e.Stack {
		v := &w.Stack[i]
		if uint32(s.Kind) != v.Kind || s.Target != v.Target || s.Full && v.Lanes != ^uint32(0) {
			return false
		}
	}
	return true
}
