package shim

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
)

// A Profile counts the warp instructions of programs, block by block: straight code that is entered at its first
// instruction. It does not measure time. Launches that end with a fault do not count.
type Profile struct {
	mu       sync.Mutex // processors end launches at once
	programs map[uint64]profiled
}

// profiled is what launches of a program executed, by program counter.
type profiled map[uint32]simd.Count

// A ProfileBlock is a row of the table. Addresses of blocks are program counters, as faults and umbra disasm have them.
type ProfileBlock struct {
	Program          uint64 // address of its entry in memory
	Address          uint32
	Instructions     int
	Times            uint64 // warps that ran it
	WarpInstructions uint64
	Share            float64 // of all warp instructions
	First            string
}

// Use makes the machines of a configuration count. Their programs are interpreted.
func (p *Profile) Use(cfg *Config) {
	p.programs = make(map[uint64]profiled)
	cfg.Executor = func() sm.Executor { return &counter{profile: p} }
	if cfg.Ran == nil {
		cfg.Ran = func(map[*isa.Form]uint64) {} // else nobody asks the executors
	}
}

// counter is an executor that tells a profile what it executed.
type counter struct {
	simd.Executor
	profile *Profile
	entry   uint64
}

// Start implements sm.Executor.
func (c *counter) Start(l *interp.Launch) {
	c.entry = l.Program.Base + uint64(l.Entry)
	c.Executor.Start(l)
}

// Ran implements sm.Executor. It is called at the end of each launch.
func (c *counter) Ran() map[*isa.Form]uint64 {
	c.profile.add(c)
	return c.Executor.Ran()
}

func (p *Profile) add(c *counter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.programs[c.entry]
	if of == nil {
		of = make(profiled)
		p.programs[c.entry] = of
	}
	for pc, n := range c.Counts() {
		n.Runs += of[pc].Runs // a program that replaced another one counts as that one
		of[pc] = n
	}
}

// Blocks lists what ran, the largest share first.
func (p *Profile) Blocks() []ProfileBlock {
	out := []ProfileBlock{}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := uint64(0)
	for entry, of := range p.programs {
		for _, b := range of.blocks() {
			b.Program = entry
			all += b.WarpInstructions
			out = append(out, b)
		}
	}
	for i := range out {
		out[i].Share = 100 * float64(out[i].WarpInstructions) / float64(all)
	}
	slices.SortFunc(out, func(a, b ProfileBlock) int {
		return cmp.Or(cmp.Compare(b.WarpInstructions, a.WarpInstructions), cmp.Compare(a.Program, b.Program), cmp.Compare(a.Address, b.Address))
	})
	return out
}

// blocks splits the code where it is entered, and behind what changes the flow of control.
func (of profiled) blocks() (out []ProfileBlock) {
	entered := make(map[uint32]bool)
	for _, n := range of {
		switch n.Op {
		case isa.Bra, isa.Call, isa.JoinAt, isa.PreBrk, isa.PreCont, isa.PreRet:
			entered[n.Target] = true
		}
	}
	next := ^uint32(0)
	for _, pc := range slices.Sorted(maps.Keys(of)) {
		n := of[pc]
		if len(out) == 0 || pc != next || entered[pc] {
			out = append(out, ProfileBlock{Address: pc, Times: n.Runs, First: n.String()})
		}
		b := &out[len(out)-1]
		b.Instructions++
		b.WarpInstructions += n.Runs
		next = pc + uint32(n.Size)
		switch n.Op {
		case isa.Bra, isa.Call, isa.Brk, isa.Cont, isa.Ret, isa.Exit, isa.Bpt:
			next = ^uint32(0)
		}
		if n.Join {
			next = ^uint32(0)
		}
	}
	return out
}

// A table fits a screen of 24 lines with 80 columns.
const (
	profileRows = 18
	profileText = 34
)

// WriteTable writes the blocks that matter most.
func (p *Profile) WriteTable(w io.Writer) error {
	list, shown := p.Blocks(), 0.0
	fmt.Fprintf(w, "%-12s %-8s %5s %10s %7s  %s\n", "program", "block", "instr", "times", "share", "first instruction")
	for _, b := range list[:min(len(list), profileRows)] {
		text := b.First
		if len(text) > profileText {
			text = text[:profileText-3] + "..."
		}
		shown += b.Share
		fmt.Fprintf(w, "%-12x %08x %5d %10d %6.1f%%  %s\n", b.Program, b.Address, b.Instructions, b.Times, b.Share, text)
	}
	if n := len(list) - profileRows; n > 0 {
		fmt.Fprintf(w, "%d more blocks: %.1f%%\n", n, 100-shown)
	}
	_, err := fmt.Fprintln(w, "times: warps that ran the block; share: of all warp instructions, not of time")
	return err
}
