package memory

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/dma"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// relocations is a card that records moves of pages, and makes none.
type relocations struct {
	card.Relocator
	list []card.Relocation
}

func (c *relocations) Relocate(r card.Relocation) (uint64, error) {
	c.list = append(c.list, r)
	return r.Size, nil
}

// TestMovesEndWithExtents: pages that are adjacent for the guest only are moved separately, and
// each to its own place in the file.
func TestMovesEndWithExtents(t *testing.T) {
	const k = 1 << 10
	m := New(nil, vram.NewExtents([]card.Run{{Addr: 512 * k, Size: 256 * k}, {Addr: 128 * k, Size: 128 * k}, {Addr: 1024 * k, Size: 256 * k}}), nil, nil)
	var cards relocations
	done, err := m.Relocate(&cards, card.Relocation{Addr: 4 * k, Size: 632 * k, Off: 8 * k})
	require.NoError(t, err)
	require.Equal(t, uint64(632*k), done)
	require.Equal(t, []card.Relocation{
		{Addr: 516 * k, Size: 252 * k, Off: 8 * k},
		{Addr: 128 * k, Size: 128 * k, Off: 260 * k},
		{Addr: 1024 * k, Size: 252 * k, Off: 388 * k},
	}, cards.list)
}

// silent is told of writes, and does not care.
type silent struct{}

func (silent) Wrote(uint64, uint64) {}

// TestMemoryOverExtents compares accesses of VRAM in pieces with a plain slice. They cross extents, and
// those that cross the end of the memory fail; none leaves it. The card gets an address only of what lies
// in one extent.
func TestMemoryOverExtents(t *testing.T) {
	const k, size = 1 << 10, 1 << 20
	c := fakecard.New(4 << 20)
	for i := range c.Bytes {
		c.Bytes[i] = 0xa5 // of others
	}
	e := vram.NewExtents([]card.Run{{Addr: 512 * k, Size: 256 * k}, {Addr: 128 * k, Size: 256 * k}, {Addr: 1024 * k, Size: 512 * k}})
	m := New(c, e, nil, silent{})
	require.NoError(t, m.Scrub())
	model := make([]byte, size)
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "data")
		p = bytes.Repeat(p, rapid.SampledFrom([]int{1, 8, 5000}).Draw(t, "times"))
		n := uint64(len(p))
		end := rapid.SampledFrom(e.List()).Draw(t, "extent")
		addr := end.Guest + end.Size - rapid.Uint64Range(0, min(n+8, end.Guest+end.Size)).Draw(t, "before its end")
		if rapid.IntRange(0, 9).Draw(t, "far") == 0 {
			addr += 1 << rapid.IntRange(20, 63).Draw(t, "by")
		}
		fits, got := addr < size && n <= size-addr, make([]byte, n)
		require.Equal(t, fits, m.Write(shadowpt.VRAM, addr, p))
		require.Equal(t, fits, m.Read(shadowpt.VRAM, addr, got))
		parts := []shadowpt.Part{{Target: shadowpt.VRAM, Addr: addr, Bytes: p}, {Target: shadowpt.Peer, Bytes: p}, {Addr: addr, Bytes: append(p[:n-1:n-1], p[n-1]+1)}}
		m.SameTables(parts)
		require.Equal(t, []bool{fits, false, false}, []bool{parts[0].Same, parts[1].Same, parts[2].Same})
		i := slices.IndexFunc(e.List(), func(e vram.Extent) bool { return addr >= e.Guest && addr < e.Guest+e.Size && n <= e.Guest+e.Size-addr })
		at, one := m.Translate(shadowpt.VRAM, addr, n, true)
		require.Equal(t, i >= 0, one, "%d bytes at %#x are in one extent", n, addr)
		require.True(t, !one || at == e.List()[i].Card+addr-e.List()[i].Guest)
		v, ok := m.Peek(addr)
		if fits {
			require.Equal(t, p, got)
			copy(model[addr:], p)
		}
		if ok {
			require.Equal(t, binary.LittleEndian.Uint32(model[addr:]), v)
		}
		m.Update(addr, 4, []Word{{Offset: 0, Value: v + 1}})
		if ok {
			binary.LittleEndian.PutUint32(model[addr:], v+1)
		}
	})
	others := bytes.Repeat([]byte{0xa5}, len(c.Bytes))
	for _, e := range e.List() {
		copy(others[e.Card:], model[e.Guest:][:e.Size])
	}
	require.True(t, bytes.Equal(others, c.Bytes), "memory of others was written, or a write was lost")
}

// TestUpdatesWaitForMoves: a word that is written while its page moves would be lost, and one that is
// compared may be in neither place.
func TestUpdatesWaitForMoves(t *testing.T) {
	c := fakecard.New(1 << 20)
	m := New(c, vram.NewExtents([]card.Run{{Size: 1 << 20}}), nil, silent{})
	done, compared := make(chan struct{}), make(chan bool)
	m.Move(func() {
		go func() {
			defer close(done)
			m.Update(0, 4, []Word{{Value: 5}})
		}()
		go func() {
			parts := []shadowpt.Part{{Bytes: make([]byte, 8)}}
			m.SameTables(parts)
			compared <- parts[0].Same
		}()
		time.Sleep(5 * time.Millisecond)
		require.Zero(t, c.Bytes[0])
		c.Bytes[7] = 1
	})
	require.False(t, <-compared)
	<-done
	require.Equal(t, byte(5), c.Bytes[0])
}

// TestReadOnlyMemory: memory that a machine maps for reading only is translated for entries that permit no
// stores.
func TestReadOnlyMemory(t *testing.T) {
	const page = shadowpt.SmallPage
	c := fakecard.New(1 << 20)
	w := dma.New(1, c).Guest(0)
	require.NoError(t, w.MapDMA(page, card.Mapping{Mem: make([]byte, page), Write: false}))
	m := New(c, vram.NewExtents(nil), w, silent{})
	for _, write := range []bool{false, true} {
		_, ok := m.Translate(shadowpt.SystemCoherent, page, page, write)
		require.Equal(t, !write, ok)
	}
}
