package engine

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/object"
)

// Support is the machine code that all programs share. A process compiles it once.
type Support struct {
	object  *object.Code
	blocks  uintptr
	helpers []uint64
}

// NewSupport compiles it.
func NewSupport(c Compiler) (*Support, error) {
	data, err := c.Compile(compile.Support(), llvm.Full)
	if err != nil {
		return nil, fmt.Errorf("the code that programs share: %w", err)
	}
	s := new(Support)
	if s.object, err = object.Load(data); err != nil {
		return nil, fmt.Errorf("the code that programs share: %w", err)
	}
	if s.blocks, err = s.object.Symbol(compile.Blocks); err != nil {
		return nil, err
	}
	for _, name := range compile.HelperNames() {
		at, err := s.object.Symbol(name)
		if err != nil {
			return nil, err
		}
		s.helpers = append(s.helpers, uint64(at))
	}
	return s, nil
}
