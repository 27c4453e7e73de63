package gsp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Memory is the guest's memory by bus address. An access that is not all inside it does nothing and
// returns false.
type Memory interface {
	Read(addr uint64, p []byte) bool
	Write(addr uint64, p []byte) bool
}

var le = binary.LittleEndian

// pageSize is that of the queues' pages and elements.
const pageSize = 4096

// Arguments are what the driver gives GSP at its boot: where the queues lie.
type Arguments struct {
	Shared   uint64 `json:"shared"` // address of the first page, which lists all
	Pages    uint32 `json:"pages"`
	Commands uint32 `json:"commands"` // offsets of the queues in them
	Status   uint32 `json:"status"`
	Resume   bool   `json:"resume"` // after a suspend
}

// Magic numbers of the structures that GSP's boot is described by: at a first boot and at a resume.
const (
	magicBoot   = 0xdc3aae21371a60b3
	magicResume = 0x8a3bb9e6c6c39d93
)

// Offsets in GSP_FMC_BOOT_PARAMS and GSP_ARGUMENTS_CACHED.
const (
	bootParamsSize = 80
	paramsDesc     = 0x10
	paramsArgs     = 0x30

	argumentsSize = 0x30
	argsPages     = 0x08
	argsCommands  = 0x10
	argsStatus    = 0x18
	argsResume    = 0x28
)

// An entry of the list of arguments is {name, address, size, kind, location}. Names are characters, the
// first one in the highest byte that is used.
const (
	listEntry = 32
	listMost  = pageSize / listEntry

	nameArguments = 'R'<<40 | 'M'<<32 | 'A'<<24 | 'R'<<16 | 'G'<<8 | 'S'
)

var errOutside = errors.New("lies outside of the guest's memory")

// ReadArguments reads what the driver describes at params, a GSP_FMC_BOOT_PARAMS. At a resume the driver
// has freed the list, and the address of the arguments is that of the first boot. It returns that
// address.
func ReadArguments(m Memory, params, before uint64) (a Arguments, at uint64, err error) {
	var p [bootParamsSize]byte
	if !m.Read(params, p[:]) {
		return a, 0, fmt.Errorf("boot parameters at %#x: %w", params, errOutside)
	}
	var magic [8]byte
	desc := le.Uint64(p[paramsDesc:])
	if !m.Read(desc, magic[:]) {
		return a, 0, fmt.Errorf("description of the firmware at %#x: %w", desc, errOutside)
	}
	switch le.Uint64(magic[:]) {
	case magicBoot:
		if at, err = findArguments(m, le.Uint64(p[paramsArgs:])); err != nil {
			return a, 0, err
		}
	case magicResume:
		at = before
	default:
		return a, 0, fmt.Errorf("description of the firmware at %#x begins with %x", desc, magic)
	}
	a, err = readArguments(m, at)
	return a, at, err
}

// findArguments returns where the list at addr says that the arguments are.
func findArguments(m Memory, addr uint64) (at uint64, err error) {
	var e [listEntry]byte
	for i := range uint64(listMost) {
		if !m.Read(addr+i*listEntry, e[:]) {
			return 0, fmt.Errorf("list of arguments at %#x: %w", addr, errOutside)
		}
		switch le.Uint64(e[:]) {
		case nameArguments:
			return le.Uint64(e[8:]), nil
		case 0:
			return 0, fmt.Errorf("list of arguments at %#x has none for RM", addr)
		}
	}
	return 0, fmt.Errorf("list of arguments at %#x has more than %d entries", addr, listMost)
}

func readArguments(m Memory, at uint64) (a Arguments, err error) {
	var p [argumentsSize]byte
	if !m.Read(at, p[:]) {
		return a, fmt.Errorf("arguments at %#x: %w", at, errOutside)
	}
	a = Arguments{Shared: le.Uint64(p[:]), Pages: le.Uint32(p[argsPages:]), Resume: p[argsResume] != 0}
	size := uint64(a.Pages) * pageSize
	for _, q := range []struct {
		name string
		at   int
		off  *uint32
	}{{"commands", argsCommands, &a.Commands}, {"status", argsStatus, &a.Status}} {
		off := le.Uint64(p[q.at:])
		if a.Pages > maxShared || off%pageSize != 0 || off < pageSize || off > size || size-off < queueSize {
			return a, fmt.Errorf("queue of %s at %#x of %d pages: want a whole page after the first, %#x bytes in at most %d pages",
				q.name, off, a.Pages, queueSize, maxShared)
		}
		*q.off = uint32(off)
	}
	if d := int64(a.Commands) - int64(a.Status); d > -queueSize && d < queueSize {
		return a, fmt.Errorf("queues at %#x and %#x overlap", a.Commands, a.Status)
	}
	return a, nil
}
