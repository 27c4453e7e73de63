package worker

import "unsafe"

const stepBytes = int(unsafe.Sizeof(Step{}))

// bytesOf returns the memory of steps, in the form in which they are sent.
func bytesOf(steps []Step) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(steps))), len(steps)*stepBytes)
}
