package engine

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// gridLaunch is which launch the processors serve, and what is kept for the next one. It belongs to the
// goroutine of the step, and does not change during one.
type gridLaunch struct {
	of     *Grid
	number uint64              // counts launches, and changes of the channel
	spare  []interp.BlockState // memory of the last launch's blocks; Block.Reset clears what a program can read
}

// switchTo goes to another channel's launch.
func (c *gridLaunch) switchTo(grid *Grid) {
	c.of, c.spare = grid, nil
	c.number++
}

// begin gives a launch room for as many blocks at a time as there are processors, and as its local
// memory is for.
func (c *gridLaunch) begin(grid *Grid, l *sm.Launch, processors int) {
	n := min(uint64(processors), grid.Blocks)
	if size := localSize(l); size > 0 {
		n = min(n, l.Local.Size/size)
	}
	if uint64(len(c.spare)) < n {
		c.spare = make([]interp.BlockState, processors)
	}
	grid.Running, c.spare = c.spare[:n], nil
	c.number++
}

// end takes the memory of a launch that has ended.
func (c *gridLaunch) end(grid *Grid) {
	c.number++
	c.spare = grid.Running[:cap(grid.Running)]
	for i := range c.spare {
		b := &c.spare[i]
		*b = interp.BlockState{Warps: b.Warps[:0], Shared: b.Shared[:0]}
	}
}

// localSize is the bytes of local memory of a block.
func localSize(l *sm.Launch) uint64 {
	block := interp.Launch{Block: l.Block, LocalPos: l.LocalLow, LocalNeg: l.LocalHigh}
	return block.LocalSize()
}
