package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/tests/smtest/launches"
)

// gpuMemory is the buffer of a launch, from its first page to its last.
type gpuMemory struct {
	*cuda
	at, low, size uint64
	faultAt       uint64
}

// bounds are those of the pages of a launch.
func bounds(l *launches.Launch) (low, high uint64) {
	low = math.MaxUint64
	for addr := range l.Pages {
		low, high = min(low, addr), max(high, addr+pageSize)
	}
	return low, high
}

func (c *cuda) memoryFor(l *launches.Launch) (*gpuMemory, error) {
	low, high := bounds(l)
	const most = 4 << 30
	if high-low > most {
		return nil, fmt.Errorf("pages from %#x to %#x: want at most %d bytes", low, high, most)
	}
	m := &gpuMemory{cuda: c, low: low, size: high - low}
	c.must(c.memAlloc(&m.at, m.size))
	c.must(c.memAlloc(&m.faultAt, 8))
	c.must(c.memset(m.at, 0, m.size))
	return m, nil
}

func (m *gpuMemory) free() {
	m.must(m.memFree(m.at))
	m.must(m.memFree(m.faultAt))
}

func (m *gpuMemory) write(pages launches.Pages) {
	for addr, b := range pages {
		m.must(m.toDevice(m.at+addr-m.low, &b[0], pageSize))
	}
	m.must(m.memset(m.faultAt, 0, 8))
	m.must(m.ctxSynchronize())
}

func (m *gpuMemory) read(like launches.Pages) launches.Pages {
	out := make(launches.Pages, len(like))
	for addr := range like {
		b := make([]byte, pageSize)
		m.must(m.toHost(&b[0], m.at+addr-m.low, pageSize))
		out[addr] = b
	}
	return out
}

func (m *gpuMemory) fault() uint64 {
	b := make([]byte, 8)
	m.must(m.toHost(&b[0], m.faultAt, 8))
	return binary.LittleEndian.Uint64(b)
}

// othersZero reports whether all is zero but pages.
func (m *gpuMemory) othersZero(pages launches.Pages) bool {
	all := make([]byte, m.size)
	m.must(m.toHost(&all[0], m.at, m.size))
	for addr := range pages {
		clear(all[addr-m.low:][:pageSize])
	}
	return bytes.Count(all, []byte{0}) == len(all)
}

// arguments are the values of a kernel's parameters, and where each is.
func (m *gpuMemory) arguments(k *compile.Kernel, l *interp.Launch) (args []byte, offsets []int, err error) {
	for _, v := range []uint64{m.at, m.low, m.size, m.faultAt, uint64(l.Shared)} {
		offsets = append(offsets, len(args))
		args = binary.LittleEndian.AppendUint64(args, v)
	}
	offsets = append(offsets, len(args))
	for _, c := range k.Constants {
		word := make([]byte, 4)
		bank := &l.Banks[c.Bank]
		if !bank.Valid || c.Offset+4 > int64(bank.Size) {
			return nil, nil, fmt.Errorf("no constant c%d[%#x]", c.Bank, c.Offset)
		}
		if err := l.Memory.Load(bank.Addr+uint64(c.Offset), word); err != nil {
			return nil, nil, err
		}
		if v := binary.LittleEndian.Uint32(word); v > c.Max {
			return nil, nil, fmt.Errorf("constant c%d[%#x] is %d: want at most %d", c.Bank, c.Offset, v, c.Max)
		}
		args = append(args, word...)
	}
	return append(args, make([]byte, 8)...), offsets, nil
}
