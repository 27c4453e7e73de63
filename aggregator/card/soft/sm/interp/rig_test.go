package interp

import (
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

func assemble(t require.TestingT, program string) []uint64 {
	code, err := isa.Assemble(program)
	require.NoError(t, err)
	return code
}

// prepare makes a launch of one block with room for everything. c0[0] is the address of the
// data, then come the arguments.
func prepare(code []uint64, threads uint32, args ...uint32) (*Launch, smtest.Memory) {
	m := smtest.NewMemory(code, args...)
	l := &Launch{
		Memory: m, Program: &Program{Memory: m, Base: smtest.Base},
		Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1},
		Registers: 63, Barriers: 16, Shared: 4096, Local: smtest.Local, LocalPos: 256, LocalNeg: 64, SharedWindow: 0xfe000000, LocalWindow: 0xff000000,
	}
	l.Banks[0] = Bank{Addr: smtest.Consts, Size: 0x1000, Valid: true}
	return l, m
}

// run executes a program in one block, which must end in time.
func run(t require.TestingT, code []uint64, threads uint32, args ...uint32) (smtest.Memory, *Fault) {
	l, m := prepare(code, threads, args...)
	b := NewBlock(l, [3]uint32{})
	_, fault := b.Step(1_000_000)
	if fault == nil {
		require.True(t, b.Done(), "the program does not end")
	}
	return m, fault
}

// results runs a program, which stores a value of each thread.
func results(t require.TestingT, code []uint64, threads uint32, args ...uint32) []uint32 {
	m, fault := run(t, code, threads, args...)
	if fault != nil {
		require.NoError(t, fault)
	}
	out := make([]uint32, threads)
	for i := range out {
		out[i] = m.Word(i)
	}
	return out
}
