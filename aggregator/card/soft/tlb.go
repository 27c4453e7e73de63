package soft

import (
	"sync"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// invalidates are the last ones, by number: an address space keeps its translations if none
// since its last check named its directory. One that is too far behind drops them, as all
// do with Config.FlushAll.
type invalidates struct {
	mu     sync.Mutex // taken last, for a moment
	recent [recentInvalidates]directory
}

const recentInvalidates = 64

// directory is what an invalidate names.
type directory struct {
	addr   uint64
	target shadowpt.Target
	all    bool // every one
}

var everyDirectory = directory{all: true}

func (d directory) names(s shadowpt.Space) bool {
	return d.all || d.addr == s.Dir && d.target == s.Target
}

// invalidate makes the address spaces of a directory drop their translations before their
// next step. Those of channels in a step are awaited. Card.mu is held.
func (c *Card) invalidate(d directory) {
	d = c.forget(d)
	for i := range c.fifo.busy {
		p := &c.fifo.busy[i]
		if c.polled {
			p.until = 0 // the driver gave up waiting
		}
		if d.all || p.ch != nil && d.names(p.ch.vm.tlb.Space()) {
			p.until = p.steps.Load()
		}
	}
	c.polled = false
}

// forget is invalidate without the wait. It returns what address spaces must drop. Card.mu is held.
func (c *Card) forget(d directory) directory {
	c.stats.Invalidates.Add(1)
	if c.cfg.FlushAll {
		d = everyDirectory
	}
	v := &c.invalidates
	v.mu.Lock()
	defer v.mu.Unlock()
	gen := c.tlbGen.Load() + 1
	v.recent[gen%recentInvalidates] = d
	c.tlbGen.Store(gen)
	return d
}

// invalidating reports whether a step is under way that may use translations which the driver's
// last invalidates named: those since it last asked for their end.
func (f *fifo) invalidating() bool {
	for i := range f.busy {
		if p := &f.busy[i]; p.until%2 != 0 && p.until == p.steps.Load() {
			return true
		}
	}
	return false
}

// windowGen changes with each invalidate.
func (c *Card) windowGen() uint64 { return c.tlbGen.Load() + c.flushes[anyOwner].Load() }

// concerned reports whether an invalidate after number from, up to number to, named
// the directory of s.
func (c *Card) concerned(s shadowpt.Space, from, to uint64) bool {
	v := &c.invalidates
	v.mu.Lock()
	defer v.mu.Unlock()
	if c.tlbGen.Load()-from >= recentInvalidates { // those since to have places, too
		return true
	}
	for n := from + 1; n <= to; n++ {
		if v.recent[n%recentInvalidates].names(s) {
			return true
		}
	}
	return false
}
