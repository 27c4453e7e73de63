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

// invalidate makes the address spaces of a directory drop their translations before their
// next step, and returns the number of the invalidate.
func (c *Card) invalidate(d directory) uint64 {
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
	return gen
}

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
		if d := v.recent[n%recentInvalidates]; d.all || d.addr == s.Dir && d.target == s.Target {
			return true
		}
	}
	return false
}
