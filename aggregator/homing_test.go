package aggregator

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// homingCard is a fake whose pages have homes: in its own memory, or in a window's file.
type homingCard struct {
	*fakeCard
	away map[uint64]card.Move // by page; guarded by fakeCard.mu
}

func newHoming(t *testing.T, o Options) *Aggregator {
	t.Helper()
	a, err := NewWith(&homingCard{newFake(fakeVRAM), make(map[uint64]card.Move)}, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	return a
}

func (c *homingCard) Home(m card.Move) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, zero := make([]byte, pageSize), make([]byte, pageSize)
	for done := uint64(0); done < m.Size; done += pageSize {
		addr := m.Addr + done
		from, was := c.away[addr]
		c.each(addr, p, c.readPage)
		copy(m.Kept[min(done, uint64(len(m.Kept))):], p)
		delete(c.away, addr)
		if m.To != nil {
			c.away[addr] = card.Move{To: m.To, Off: m.Off + done}
		}
		if !m.Adopt {
			c.each(addr, p, c.writePage)
		}
		if was && !m.Stay {
			must(from.To.WriteAt(zero, int64(from.Off)))
		}
	}
	return m.Size, nil
}

// each does something with the part of p in each page.
func (c *homingCard) each(addr uint64, p []byte, do func(addr uint64, p []byte)) {
	for len(p) > 0 {
		n := min(uint64(len(p)), pageSize-addr%pageSize)
		do(addr, p[:n])
		addr, p = addr+n, p[n:]
	}
}

func (c *homingCard) readPage(addr uint64, p []byte) {
	if m, ok := c.away[addr&^(pageSize-1)]; ok {
		must(m.To.ReadAt(p, int64(m.Off+addr%pageSize)))
		return
	}
	copy(p, c.vram[addr:])
}

func (c *homingCard) writePage(addr uint64, p []byte) {
	if m, ok := c.away[addr&^(pageSize-1)]; ok {
		must(m.To.WriteAt(p, int64(m.Off+addr%pageSize)))
		return
	}
	copy(c.vram[addr:], p)
}

func must(_ int, err error) {
	if err != nil {
		panic(err)
	}
}

func (c *homingCard) ReadVRAM(addr uint64, p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr+uint64(len(p)) > uint64(len(c.vram)) {
		return false
	}
	c.each(addr, p, c.readPage)
	return true
}

func (c *homingCard) SameVRAM(addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return c.ReadVRAM(addr, now) && bytes.Equal(now, p)
}

func (c *homingCard) WriteVRAM(addr uint64, p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr+uint64(len(p)) > uint64(len(c.vram)) {
		return false
	}
	c.each(addr, p, c.writePage)
	return true
}

func (c *homingCard) ScrubVRAM(addr, n uint64) error {
	if !c.WriteVRAM(addr, make([]byte, n)) {
		return fmt.Errorf("scrub %#x+%#x", addr, n)
	}
	return nil
}
