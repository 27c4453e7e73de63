package interp

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

// Executor implements sm.Executor. The zero value is ready for Start.
type Executor struct {
	launch *Launch
	budget int // of the step under way
}

// cost is that of an instruction, as package simd counts those that it leaves to this one.
const cost = 64

// Start implements sm.Executor.
func (x *Executor) Start(l *Launch) { x.launch = l }

// Begin implements sm.Executor: it keeps no memory.
func (x *Executor) Begin() {}

// Step implements sm.Executor.
func (x *Executor) Step(b *Block, budget int) (spent int, fault *Fault) {
	for x.budget = budget; spent < x.budget; spent += cost {
		if n, fault := b.Step(1); n == 0 || fault != nil {
			return spent, fault
		}
	}
	return spent, nil
}

// Stop implements sm.Executor.
func (x *Executor) Stop() { x.budget = 0 }

// Ran implements sm.Executor.
func (x *Executor) Ran() map[*isa.Form]uint64 { return x.launch.Program.Ran() }
