package process

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// words are the instructions of a program, by program counter.
type words []word

type word struct {
	pc   uint32
	bits uint64
}

// maxWords bounds the instructions that a program is searched for. Package compile refuses so many.
const maxWords = 8192

// reach collects all instructions that a program may reach.
func reach(l *interp.Launch) (out words) {
	front := fermi.FrontEnd{Launch: l}
	seen := make(map[uint32]bool)
	for queue := []uint32{l.Entry}; len(queue) > 0 && len(out) < maxWords; {
		pc := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		bits, err := l.Program.Word(pc)
		if err != nil {
			continue
		}
		out = append(out, word{pc, bits})
		in, ok := front.Decode(pc)
		if !ok {
			continue
		}
		switch in.Flow {
		case compile.Branch, compile.Push, compile.Elsewhere:
			queue = append(queue, in.Target)
		}
		ends := in.Flow == compile.Branch || in.Flow == compile.Leave || in.Flow == compile.Exit
		if !ends || !in.Guard.Always {
			queue = append(queue, in.Next)
		}
	}
	slices.SortFunc(out, func(a, b word) int { return cmp.Compare(a.pc, b.pc) })
	return out
}

func (w words) at(pc uint32) (uint64, bool) {
	n, ok := slices.BinarySearchFunc(w, pc, func(e word, pc uint32) int { return cmp.Compare(e.pc, pc) })
	if !ok {
		return 0, false
	}
	return w[n].bits, true
}

// snapshot is memory with a program at a base, and its constants: it does not change while the program is compiled.
type snapshot struct {
	words
	base  uint64
	banks []bank
}

// bank is a copy of constants.
type bank struct {
	addr uint64
	mem  []byte
}

// mostOfBank is how much of a bank of constants a compiler sees.
const mostOfBank = 4096

// banksOf copies the constants of a launch, as far as they can be reached.
func banksOf(l *interp.Launch) (out []bank) {
	for i := range l.Banks {
		b := &l.Banks[i]
		if !b.Valid {
			continue
		}
		mem := make([]byte, min(b.Size, mostOfBank))
		if l.Memory.Load(b.Addr, mem) == nil {
			out = append(out, bank{b.Addr, mem})
		}
	}
	return out
}

// Load implements interp.Memory.
func (s snapshot) Load(addr uint64, to []byte) error {
	for _, b := range s.banks {
		if at := addr - b.addr; at < uint64(len(b.mem)) && uint64(len(to)) <= uint64(len(b.mem))-at {
			copy(to, b.mem[at:])
			return nil
		}
	}
	pc := uint32(addr - s.base)
	bits, ok := s.at(pc)
	if !ok {
		if bits, ok = s.at(pc - 4); !ok {
			return fmt.Errorf("%#x is outside of the program", addr)
		}
		bits >>= 32
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	copy(to, b[:])
	return nil
}

// Store implements interp.Memory: nothing writes to a program that is compiled.
func (s snapshot) Store(addr uint64, _ []byte) error {
	return fmt.Errorf("store to a program at %#x", addr)
}

// Update implements interp.Memory, as Store.
func (s snapshot) Update(addr uint64, _ int, _ func(uint64) uint64) (uint64, error) {
	return 0, s.Store(addr, nil)
}
