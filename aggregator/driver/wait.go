package driver

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Operations that take time on the card. Requests of all guests share them; see coalescer.

// A wait polls quickly at first, then ever more rarely.
const (
	pollMin = 5 * time.Microsecond
	pollMax = time.Millisecond

	pollGrace = 16 // extra polls after the deadline before a wait fails: 9 to 20 ms
)

// await polls reg until v&mask == want.
func (d *Driver) await(reg, mask, want uint32) bool {
	return d.until(func() bool { return d.rd(reg)&mask == want })
}

// until asks over and over whether the card is done, up to the timeout and pollGrace further polls: if
// this process was descheduled, so was the card.
func (d *Driver) until(done func() bool) bool {
	pause, deadline := pollMin, time.Now().Add(d.opts.Timeout)
	for late := 0; ; {
		if time.Now().After(deadline) {
			late++
		}
		if done() {
			return true
		}
		if late == pollGrace {
			return false
		}
		time.Sleep(pause)
		pause = min(pause*2, pollMax)
	}
}

// Invalidate implements card.Share. Translations of other spaces stay cached. If there is none to name
// it names memory of the share that is no directory.
func (s *share) Invalidate(spaces ...card.Space) bool {
	dirs := make([]uint64, 0, max(len(spaces), 1))
	for _, sp := range spaces {
		dirs = append(dirs, sp.(*space).root.addr)
	}
	if len(dirs) == 0 {
		dirs = append(dirs, s.runs[0].Addr)
	}
	if !s.driver.invalidate(dirs) {
		return false
	}
	freeRetired(spaces)
	return true
}

// freeRetired frees what the spaces have retired.
func freeRetired(spaces []card.Space) {
	for _, sp := range spaces {
		sp.(*space).freeRetired()
	}
}

func (d *Driver) invalidate(dirs []uint64) bool {
	join := func(k *batch) {
		k.dirs = append(k.dirs, dirs...)
		k.allDirs = k.allDirs || len(k.dirs) > d.opts.invalidateDirs
	}
	return d.invalidating.do(join, func(k *batch) bool {
		d.writes.Lock()
		if k.allDirs {
			d.wr(regInvalidatePDB, 0)
			d.wr(regInvalidate, gf100.InvalidateGo|gf100.InvalidateAllDirs|gf100.InvalidateAllPages)
		} else {
			for _, dir := range k.dirs {
				d.wr(regInvalidatePDB, uint32(dir>>12)<<4|uint32(shadowpt.VRAM))
				d.wr(regInvalidate, gf100.InvalidateGo|gf100.InvalidateAllPages)
			}
		}
		d.writes.Unlock()
		return d.await(regMMUCtrl, gf100.InvalidateDone, gf100.InvalidateDone)
	})
}

// commitRunlist gives the card the list of channels and waits until removed channels have
// left. The list is made when the operation begins, so it includes everything listed before
// commitRunlist was called.
func (d *Driver) commitRunlist() bool {
	return d.committing.do(func(*batch) {}, func(*batch) bool {
		d.writeRunlist()
		return d.await(regEngRunlist, gf100.RunlistPending, 0)
	})
}

func (d *Driver) writeRunlist() {
	n, buf := 0, make([]byte, 0, gf100.Channels*gf100.RunlistEntrySize)
	d.table.Lock()
	for id, m := range d.channels {
		if ch, ok := m.(*channel); ok && ch.listed {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
			buf = binary.LittleEndian.AppendUint32(buf, 4)
			n++
		}
	}
	d.table.Unlock()
	d.writes.Lock()
	defer d.writes.Unlock()
	d.active ^= 1
	addr := d.runlists[d.active]
	d.WriteVRAM(addr, buf)
	d.wr(regRunlistBase, uint32(addr>>12))
	d.wr(regRunlist, 0x01f00000|uint32(n))
}

// Preempt implements card.GPU.
func (d *Driver) Preempt(channels ...card.Channel) bool {
	ids := make([]uint32, len(channels))
	for i, ch := range channels {
		ids[i] = ch.ID()
	}
	return d.preempt(ids)
}

// preempt makes channels leave their PBDMAs, one after the other: the register takes one at a
// time.
func (d *Driver) preempt(ids []uint32) bool {
	join := func(k *batch) {
		for _, id := range ids {
			k.ids[id] = true
		}
	}
	return d.preempting.do(join, func(k *batch) bool {
		ok := true
		for id, asked := range k.ids {
			if asked {
				d.writes.Lock()
				d.wr(regPreempt, uint32(id))
				d.writes.Unlock()
				ok = ok && d.await(regPreempt, gf100.PreemptPending, 0)
			}
		}
		return ok
	})
}

// coalescer runs one kind of card operation for all guests at once: each caller that asks
// before an operation begins takes part in it. With any number of guests asking, each waits
// for the operation under way and the next one, never for a queue of neighbours. If the card does
// not complete it in time, each repeats its own part alone: what did not end may be a neighbour's.
//
// Its lock is held for a moment only, never while the card is asked.
type coalescer struct {
	mu   sync.Mutex
	over sync.Cond
	busy bool
	next *batch // of the operation that has not begun
}

// batch is one operation.
type batch struct {
	done, ok bool
	callers  int
	ids      [gf100.Channels]bool // for a preempt
	dirs     []uint64             // for an invalidate: directories in the card's memory
	allDirs  bool                 // or all of them
}

func (c *coalescer) init() { c.over.L = &c.mu }

// do takes part in the next operation and returns its result. join adds to the batch; run
// executes it for all callers, on the goroutine of one of them.
func (c *coalescer) do(join func(*batch), run func(*batch) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = new(batch)
	}
	b := c.next
	b.callers++
	join(b)
	for c.busy && !b.done {
		c.over.Wait()
	}
	if !b.done {
		c.next = nil
		c.operate(b, run)
	}
	if !b.ok && b.callers > 1 {
		b = new(batch)
		join(b)
		for c.busy {
			c.over.Wait()
		}
		c.operate(b, run)
	}
	return b.ok
}

// operate runs an operation while no other one is under way. c.mu is held.
func (c *coalescer) operate(b *batch, run func(*batch) bool) {
	c.busy = true
	c.mu.Unlock()
	ok := run(b)
	c.mu.Lock()
	b.done, b.ok, c.busy = true, ok, false
	c.over.Broadcast()
}
