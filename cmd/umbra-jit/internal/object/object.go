// Package object places object files of the compiler in executable memory.
//
// An object refers to nothing outside of itself: a symbol that it does not define is an error. Its
// memory is writable while it is filled, and only then; after that it is executable.
package object

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// maxSize bounds what an object takes in memory.
const maxSize = 64 << 20

// Code is an object in memory. Whoever loaded it unloads it, when no thread runs it.
type Code struct {
	memory  []byte
	symbols map[string]uintptr
}

// Load places an object.
func Load(object []byte) (*Code, error) {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	if f.Machine != elf.EM_X86_64 || f.Type != elf.ET_REL {
		return nil, fmt.Errorf("object for %v of type %v; want a relocatable one for %v", f.Machine, f.Type, elf.EM_X86_64)
	}
	at, size, err := layout(f)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("memory for %d bytes of code: %w", size, err)
	}
	c := &Code{memory: memory, symbols: make(map[string]uintptr)}
	if err := c.fill(f, at); err != nil {
		return nil, errors.Join(err, c.Unload())
	}
	return c, nil
}

// layout gives each section that has memory a place.
func layout(f *elf.File) (at []int, size int, err error) {
	at = make([]int, len(f.Sections))
	for i, s := range f.Sections {
		at[i] = -1
		if s.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 {
			continue
		}
		align := max(int(s.Addralign), 1)
		if s.Size > maxSize || align > 4096 || size > maxSize {
			return nil, 0, fmt.Errorf("section %s of %d bytes; want at most %d in all", s.Name, s.Size, maxSize)
		}
		size = (size + align - 1) / align * align
		at[i] = size
		size += int(s.Size)
	}
	if size == 0 {
		return nil, 0, errors.New("the object has no code")
	}
	return at, size, nil
}

func (c *Code) fill(f *elf.File, at []int) error {
	for i, s := range f.Sections {
		if at[i] < 0 || s.Type == elf.SHT_NOBITS {
			continue
		}
		data, err := s.Data()
		if err != nil {
			return err
		}
		copy(c.memory[at[i]:], data)
	}
	symbols, err := f.Symbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if n := int(s.Section); n < len(at) && at[n] >= 0 && s.Name != "" {
			c.symbols[s.Name] = c.base() + uintptr(at[n]) + uintptr(s.Value)
		}
	}
	for _, s := range f.Sections {
		if s.Type == elf.SHT_RELA && int(s.Info) < len(at) && at[s.Info] >= 0 {
			data, err := s.Data()
			if err != nil {
				return err
			}
			if err := c.relocate(data, at[s.Info], symbols, at); err != nil {
				return err
			}
		}
	}
	return unix.Mprotect(c.memory, unix.PROT_READ|unix.PROT_EXEC)
}

// relocate applies the relocations of a section.
func (c *Code) relocate(rela []byte, section int, symbols []elf.Symbol, at []int) error {
	const entry = 24
	for ; len(rela) >= entry; rela = rela[entry:] {
		offset, info := binary.LittleEndian.Uint64(rela), binary.LittleEndian.Uint64(rela[8:])
		addend := int64(binary.LittleEndian.Uint64(rela[16:]))
		number, kind := int(info>>32), elf.R_X86_64(info&math.MaxUint32)
		if number == 0 || number > len(symbols) {
			return fmt.Errorf("relocation of symbol %d; the object has %d", number, len(symbols))
		}
		s := symbols[number-1] // the first one, which is none, is left out
		if int(s.Section) >= len(at) || s.Section == elf.SHN_UNDEF || at[s.Section] < 0 {
			return fmt.Errorf("the code refers to %q, which it does not define; want code that needs no library", s.Name)
		}
		place := section + int(offset)
		width := 4
		if kind == elf.R_X86_64_64 || kind == elf.R_X86_64_PC64 {
			width = 8
		}
		if place < 0 || place+width > len(c.memory) {
			return fmt.Errorf("relocation at %#x is outside of the code's %#x bytes", place, len(c.memory))
		}
		value := int64(at[s.Section]) + int64(s.Value) + addend // from the start of the memory
		switch kind {
		case elf.R_X86_64_PC32, elf.R_X86_64_PLT32:
			binary.LittleEndian.PutUint32(c.memory[place:], uint32(value-int64(place)))
		case elf.R_X86_64_64:
			binary.LittleEndian.PutUint64(c.memory[place:], uint64(c.base())+uint64(value))
		case elf.R_X86_64_PC64:
			binary.LittleEndian.PutUint64(c.memory[place:], uint64(value-int64(place)))
		default:
			return fmt.Errorf("relocation %v of %q; want one of R_X86_64_PC32, PLT32, PC64 and 64", kind, s.Name)
		}
	}
	return nil
}

// Symbol returns the address of a function.
func (c *Code) Symbol(name string) (uintptr, error) {
	at, ok := c.symbols[name]
	if !ok {
		return 0, fmt.Errorf("the code has no function %q", name)
	}
	return at, nil
}

// Size is the bytes of memory that the code has.
func (c *Code) Size() int { return len(c.memory) }

// Unload gives the memory back.
func (c *Code) Unload() error { return unix.Munmap(c.memory) }
