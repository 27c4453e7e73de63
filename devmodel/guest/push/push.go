// Package push builds push buffers of GF100 and GH100, which have the same headers. It has command headers
// with their data, and the method numbers of the classes that guests use. devmodel/guest and the guest
// programs share it.
//
// A header word is op 31:29, count (or 13-bit immediate data) 28:16, subchannel
// 15:13, method/4 11:0. Method numbers here are byte addresses, as in NVIDIA's
// class headers (cl906f.h, cl9039.h, cl902d.h, cl9097.h, cl90c0.h) and, for the
// copy engines, as nouveau's microcode defines them, which is not cl90b5.h.
//
// A Buffer is not safe for use by several goroutines.
package push

import "fmt"

// Header operations, bits 31:29.
const (
	opIncreasing    = 1
	opNonIncreasing = 3
)

// Limits of the header's fields.
const (
	MaxCount   = 1<<13 - 1 // data words after one header
	MaxMethod  = 0x3ffc
	MaxSubchan = 7
)

// Subchan is a subchannel number, 0 to 7.
type Subchan uint8

// Method is the byte address of a method.
type Method uint16

// Buffer collects command words. The zero value is ready. A value that does
// not fit its field is a bug of the caller and panics.
type Buffer struct {
	Words []uint32
}

func header(op uint32, sc Subchan, m Method, field int) uint32 {
	if sc > MaxSubchan || m > MaxMethod || m%4 != 0 || field < 0 || field > MaxCount {
		panic(fmt.Sprintf("push: header out of range: subchannel %d, method %#x, field %d", sc, m, field))
	}
	return op<<29 | uint32(field)<<16 | uint32(sc)<<13 | uint32(m)/4
}

// Inc writes data to m, m+4, m+8, ...
func (b *Buffer) Inc(sc Subchan, m Method, data ...uint32) *Buffer {
	return b.Raw(header(opIncreasing, sc, m, len(data))).Raw(data...)
}

// NonInc writes all data to m.
func (b *Buffer) NonInc(sc Subchan, m Method, data ...uint32) *Buffer {
	return b.Raw(header(opNonIncreasing, sc, m, len(data))).Raw(data...)
}

// Raw appends words as they are.
func (b *Buffer) Raw(words ...uint32) *Buffer {
	b.Words = append(b.Words, words...)
	return b
}

// Reset empties the buffer and keeps its memory.
func (b *Buffer) Reset() { b.Words = b.Words[:0] }

func hi(va uint64) uint32 { return uint32(va >> 32) }
func lo(va uint64) uint32 { return uint32(va) }
