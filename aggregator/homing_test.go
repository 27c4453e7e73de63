package aggregator

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/homes/homestest"
)

// homingCard is a fake whose pages can be moved to windows. fakeCard.mu guards the memory, too.
type homingCard struct {
	*fakeCard
	memory *homestest.Memory
}

func newHoming(t *testing.T, o Options) (*Aggregator, *homingCard) {
	t.Helper()
	c := &homingCard{newFake(fakeVRAM), homestest.New(fakeVRAM)}
	a, err := NewWith(c, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	return a, c
}

func (c *homingCard) Home(m card.Move) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory.Home(m)
}

func (c *homingCard) has(addr uint64, p []byte) bool {
	return addr+uint64(len(p)) <= uint64(len(c.memory.Bytes))
}

func (c *homingCard) ReadVRAM(addr uint64, p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.has(addr, p) {
		return false
	}
	c.memory.Read(addr, p)
	return true
}

func (c *homingCard) SameVRAM(addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return c.ReadVRAM(addr, now) && bytes.Equal(now, p)
}

func (c *homingCard) WriteVRAM(addr uint64, p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.has(addr, p) {
		return false
	}
	c.memory.Write(addr, p)
	return true
}

func (c *homingCard) ScrubVRAM(addr, n uint64) error {
	if !c.WriteVRAM(addr, make([]byte, n)) {
		return fmt.Errorf("scrub %#x+%#x", addr, n)
	}
	return nil
}
