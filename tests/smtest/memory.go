package smtest

import (
	"encoding/binary"
	"errors"
)

// Memory is an address space of one range. Code is at its start, then a constant buffer.
type Memory []byte

// Where things are in a Memory.
const (
	Base   = 1 << 32
	Consts = Base + 0x6000
	Data   = Base + 0x7000
	Local  = Base + 0x8000
	Size   = 0x10000
)

var errUnmapped = errors.New("not mapped")

// NewMemory has code at its start. The constant buffer has the address of the data, then the arguments.
func NewMemory(code []uint64, args ...uint32) Memory {
	m := make(Memory, Size)
	for i, w := range code {
		binary.LittleEndian.PutUint64(m[8*i:], w)
	}
	binary.LittleEndian.PutUint64(m[Consts-Base:], Data)
	for i, v := range args {
		binary.LittleEndian.PutUint32(m[Consts-Base+8+4*i:], v)
	}
	return m
}

// Bytes implements simd.Pages.
func (m Memory) Bytes(addr uint64, n int, _ bool) ([]byte, error) { return m.at(addr, n) }

func (m Memory) at(addr uint64, n int) ([]byte, error) {
	if addr < Base || addr-Base+uint64(n) > uint64(len(m)) {
		return nil, errUnmapped
	}
	return m[addr-Base:][:n], nil
}

// Load implements interp.Memory.
func (m Memory) Load(addr uint64, to []byte) error {
	b, err := m.at(addr, len(to))
	copy(to, b)
	return err
}

// Store implements interp.Memory.
func (m Memory) Store(addr uint64, from []byte) error {
	b, err := m.at(addr, len(from))
	copy(b, from)
	return err
}

// Update implements interp.Memory.
func (m Memory) Update(addr uint64, size int, f func(uint64) uint64) (uint64, error) {
	var buf [8]byte
	if err := m.Load(addr, buf[:size]); err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(buf[:])
	binary.LittleEndian.PutUint64(buf[:], f(old))
	return old, m.Store(addr, buf[:size])
}

// Word returns 32 bits of the data.
func (m Memory) Word(i int) uint32 { return binary.LittleEndian.Uint32(m[Data-Base+4*i:]) }
