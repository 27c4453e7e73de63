package interp

import (
	"encoding/binary"
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// memory is an address space of one range. Code is at its start, then a constant buffer.
type memory []byte

const (
	base   = 1 << 32
	consts = base + 0x6000
	data   = base + 0x7000
	local  = base + 0x8000
	limit  = 0x10000
)

var errUnmapped = errors.New("not mapped")

func (m memory) at(addr uint64, n int) ([]byte, error) {
	if addr < base || addr-base+uint64(n) > uint64(len(m)) {
		return nil, errUnmapped
	}
	return m[addr-base:][:n], nil
}

func (m memory) Load(addr uint64, to []byte) error {
	b, err := m.at(addr, len(to))
	copy(to, b)
	return err
}

func (m memory) Store(addr uint64, from []byte) error {
	b, err := m.at(addr, len(from))
	copy(b, from)
	return err
}

func (m memory) Update(addr uint64, size int, f func(uint64) uint64) (uint64, error) {
	var buf [8]byte
	if err := m.Load(addr, buf[:size]); err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(buf[:])
	binary.LittleEndian.PutUint64(buf[:], f(old))
	return old, m.Store(addr, buf[:size])
}

// word returns 32 bits of the data.
func (m memory) word(i int) uint32 { return binary.LittleEndian.Uint32(m[data-base+4*i:]) }

func assemble(t require.TestingT, program string) []uint64 {
	code, err := isa.Assemble(program)
	require.NoError(t, err)
	return code
}

// prepare makes a launch of one block with room for everything. c0[0] is the address of the
// data, then come the arguments.
func prepare(code []uint64, threads uint32, args ...uint32) (*Launch, memory) {
	m := make(memory, limit)
	for i, w := range code {
		binary.LittleEndian.PutUint64(m[8*i:], w)
	}
	binary.LittleEndian.PutUint64(m[consts-base:], data)
	for i, v := range args {
		binary.LittleEndian.PutUint32(m[consts-base+8+4*i:], v)
	}
	l := &Launch{
		Memory: m, Program: &Program{Memory: m, Base: base},
		Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1},
		Registers: 63, Shared: 4096, Local: local, LocalPos: 256, LocalNeg: 64, SharedWindow: 0xfe000000, LocalWindow: 0xff000000,
	}
	l.Banks[0] = Bank{Addr: consts, Size: 0x1000, Valid: true}
	return l, m
}

// run executes a program in one block, which must end in time.
func run(t require.TestingT, code []uint64, threads uint32, args ...uint32) (memory, *Fault) {
	l, m := prepare(code, threads, args...)
	b := NewBlock(l, [3]uint32{})
	_, fault := b.Step(1_000_000)
	if fault == nil {
		require.True(t, b.Done(), "the program does not end")
	}
	return m, fault
}

// store is the end of programs: each thread stores $r0 in the data at its own word.
const store = `
	mov b32 $r62 $tidx
	ld b64 $r60d c0[0x0]
	add b32 $r60 $c (shl $r62 0x2) $r60
	add b32 $r61 $r61 0x0 $c
	st b32 wb g[$r60d] $r0
	exit
`

// results runs a program, which stores a value of each thread.
func results(t require.TestingT, code []uint64, threads uint32, args ...uint32) []uint32 {
	m, fault := run(t, code, threads, args...)
	if fault != nil {
		require.NoError(t, fault)
	}
	out := make([]uint32, threads)
	for i := range out {
		out[i] = m.word(i)
	}
	return out
}
