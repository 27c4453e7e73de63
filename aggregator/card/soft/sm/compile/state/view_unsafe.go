package state

import "unsafe"

const (
	headerSize = int(unsafe.Sizeof(Block{})+63) &^ 63
	warpSize   = int(unsafe.Sizeof(Warp{}))
)

func aligned(memory []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%64 == 0 }

func blockAt(memory []byte) *Block { return (*Block)(unsafe.Pointer(unsafe.SliceData(memory))) }

func warpsAt(memory []byte, n int) []Warp {
	return unsafe.Slice((*Warp)(unsafe.Pointer(unsafe.SliceData(memory))), n)
}
