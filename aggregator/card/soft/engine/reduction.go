package engine

import (
	"encoding/binary"
	"sync"
)

// reducing makes reductions atomic among all channels. It is taken last, for a moment.
var reducing sync.Mutex

// Reduction is an operation that combines a semaphore's payload with the value in memory. The
// numbers are those of the host methods and of the copy engine (NVIDIA clc36f.h, clc8b5.h).
type Reduction uint8

// The reductions.
const (
	ReduceMin Reduction = iota
	ReduceMax
	ReduceXor
	ReduceAnd
	ReduceOr
	ReduceAdd
	ReduceInc // to 0 after the payload
	ReduceDec // to the payload after 0
)

// Supported reports whether the hardware has the reduction for values of 32 bits, or 64 if wide
// (NVIDIA's dev_pbdma manual of GV100).
func (r Reduction) Supported(wide, unsigned bool) bool {
	switch r {
	case ReduceMin, ReduceMax, ReduceXor, ReduceAnd, ReduceOr:
		return true
	case ReduceAdd:
		return unsigned || !wide
	case ReduceInc, ReduceDec:
		return unsigned && !wide
	}
	return false
}

// Apply combines the payload with the value that fills mem: four or eight aligned bytes.
func (r Reduction) Apply(mem []byte, payload uint64, unsigned bool) {
	reducing.Lock()
	defer reducing.Unlock() // also after a memory fault of the process
	if len(mem) == 4 {
		v, p := binary.LittleEndian.Uint32(mem), uint32(payload)
		less := v < p && unsigned || int32(v) < int32(p) && !unsigned
		binary.LittleEndian.PutUint32(mem, uint32(r.of(uint64(v), uint64(p), less)))
		return
	}
	v := binary.LittleEndian.Uint64(mem)
	less := v < payload && unsigned || int64(v) < int64(payload) && !unsigned
	binary.LittleEndian.PutUint64(mem, r.of(v, payload, less))
}

// of is the result for a value and a payload. less says that the value is the smaller one by sign.
func (r Reduction) of(v, p uint64, less bool) uint64 {
	switch {
	case r == ReduceMin && less, r == ReduceMax && !less:
		return v
	case r == ReduceMin, r == ReduceMax, r == ReduceDec && (v == 0 || v > p):
		return p
	case r == ReduceXor:
		return v ^ p
	case r == ReduceAnd:
		return v & p
	case r == ReduceOr:
		return v | p
	case r == ReduceDec:
		return v - 1
	case r == ReduceInc && v >= p:
		return 0
	case r == ReduceInc:
		return v + 1
	}
	return v + p
}
