package aggregator

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// A wait polls quickly at first, then ever more rarely.
const (
	pollMin = 5 * time.Microsecond
	pollMax = time.Millisecond

	pollGrace = 16 // extra polls after the deadline before a wait fails: 9 to 20 ms
)

// control drives the card's registers, as a driver does.
type control struct {
	card    card.Card
	timeout time.Duration // for one card operation
	maxDirs int           // Options.InvalidateDirs
	fixed   []vram.Run    // in VRAM: written by bringUp and never changed

	// Operations that take time on the card.
	invalidating, committing, preempting coalescer

	mu       sync.Mutex // serializes sequences of writes; nothing waits under it
	runlists [2]uint64  // in VRAM; the card may be reading one of them
	active   int

	words sync.Pool // of *word

	timeouts atomic.Uint64 // operations that the card did not complete in time
}

func (c *control) init(cd card.Card, timeout time.Duration, maxDirs int) {
	c.card, c.timeout, c.maxDirs = cd, timeout, maxDirs
	c.invalidating.init()
	c.committing.init()
	c.preempting.init()
}

// Register values.
const (
	channelStart  = 0x001f0001
	instanceBound = gf100.InstanceBound | 1<<30
	graphGoOn     = 0x00010001
	contextInst   = 1<<28 - 1 // in NV_PGRAPH_PRI_FECS_CURRENT_CTX and a copy engine's CURCTX
	pbdmaIntrs    = 0xfffffeff
	copyRefused   = 1 << 6 // in a copy engine's IRQSTAT

	// In NV_PMC_INTR_0.
	intrPFIFO    = 1 << 8
	intrPGRAPH   = 1 << 12
	intrCE0      = 1 << 5
	intrCE1      = 1 << 6
	intrOurs     = intrPFIFO | intrPGRAPH | intrCE0 | intrCE1
	pollAreaBAR1 = 0 // where the poll area lies in BAR1
)

// word is a pooled buffer for one access: a buffer on the stack would escape through the
// card's interface.
type word [8]byte

func (c *control) word() *word {
	if w, ok := c.words.Get().(*word); ok {
		return w
	}
	return new(word)
}

func (c *control) rd(off uint32) uint32 {
	b := c.word()
	defer c.words.Put(b)
	c.card.ReadBAR(card.BAR0, uint64(off), b[:4])
	return binary.LittleEndian.Uint32(b[:])
}

func (c *control) wr(off, v uint32) {
	b := c.word()
	defer c.words.Put(b)
	binary.LittleEndian.PutUint32(b[:], v)
	c.card.WriteBAR(card.BAR0, uint64(off), b[:4])
}

// readVRAM reads a dword of the card's memory.
func (c *control) readVRAM(addr uint64) uint32 {
	b := c.word()
	defer c.words.Put(b)
	c.card.ReadVRAM(addr, b[:4])
	return binary.LittleEndian.Uint32(b[:])
}

// writeVRAM is the reverse of readVRAM.
func (c *control) writeVRAM(addr uint64, v uint32) {
	b := c.word()
	defer c.words.Put(b)
	binary.LittleEndian.PutUint32(b[:], v)
	c.card.WriteVRAM(addr, b[:4])
}

// bringUp enables interrupts and PFIFO, and makes BAR1 show the poll area only. alloc
// returns memory of the aggregator's own.
func (c *control) bringUp(alloc func(n uint64) (uint64, error)) (pollArea uint64, err error) {
	var dir, table, inst uint64
	for _, a := range []struct {
		addr *uint64
		size uint64
	}{
		{&pollArea, gf100.PollSize}, {&dir, shadowpt.DirSize}, {&table, shadowpt.SmallTableSize}, {&inst, gf100.InstanceSize},
		{&c.runlists[0], vram.PageSize}, {&c.runlists[1], vram.PageSize},
	} {
		if *a.addr, err = alloc(a.size); err != nil {
			return 0, err
		}
	}
	entries := make([]byte, gf100.PollSize/vram.PageSize*8)
	for i := range uint64(gf100.PollSize / vram.PageSize) {
		binary.LittleEndian.PutUint64(entries[i*8:], shadowpt.PTE{Valid: true, Addr: pollArea + i*vram.PageSize}.Encode())
	}
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}
	block := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(block, uint32(dir>>12))
	gf100.InstPDBHi.Put(block, uint32(dir>>32))
	gf100.InstLimitLo.Put(block, gf100.PollSize>>12-1)
	for _, w := range []struct {
		addr uint64
		data []byte
	}{
		{table, entries}, {dir, binary.LittleEndian.AppendUint64(nil, pde.Encode())}, {inst, block},
	} {
		if !c.card.WriteVRAM(w.addr, w.data) {
			return 0, fmt.Errorf("aggregator: the card has no memory at %#x", w.addr)
		}
	}
	c.fixed = []vram.Run{{Addr: dir, Size: shadowpt.DirSize}, {Addr: table, Size: shadowpt.SmallTableSize}, {Addr: inst, Size: gf100.InstanceSize}}
	for _, w := range []struct{ reg, val uint32 }{
		{regPMCIntrEn, 0},
		{regPMCEnable, ^uint32(0)},
		{regBAR1Block, gf100.BlockVirtual | uint32(inst>>12)},
		{regFIFOIntr, ^uint32(0)}, {regFIFOIntrEn, ^uint32(0)}, {regEngEventEn, 1},
		{regPBDMAIntrEn, pbdmaIntrs}, {regPBDMAIntrEn + stridePBDMA, pbdmaIntrs}, {regPBDMAIntrEn + 2*stridePBDMA, pbdmaIntrs},
		{regUSERDBase, 1<<28 | pollAreaBAR1>>12},
		{regFIFOEnable, gf100.FIFOEnabled},
		{regGraphIntr, ^uint32(0)}, {regGraphIntrEn, ^uint32(0)}, {regGraphFIFO, graphGoOn},
		{regCopyMask, copyRefused}, {regCopyDest, copyRefused},
		{regCopyMask + strideCopy, copyRefused}, {regCopyDest + strideCopy, copyRefused},
		{regPMCIntrMask0, intrOurs},
		{regPMCIntrEn, 1},
	} {
		c.wr(w.reg, w.val)
	}
	return pollArea, nil
}

// time reads the card's PTIMER in nanoseconds.
func (c *control) time() uint64 {
	for {
		hi := c.rd(regTimeHi)
		lo := c.rd(regTimeLo)
		if c.rd(regTimeHi) == hi {
			return uint64(hi)<<32 | uint64(lo)
		}
	}
}

// await polls reg until v&mask == want, up to the timeout and pollGrace further polls: if
// this process was descheduled, so was the card.
func (c *control) await(reg, mask, want uint32) bool {
	pause, deadline := pollMin, time.Now().Add(c.timeout)
	for late := 0; ; {
		if time.Now().After(deadline) {
			late++
		}
		if c.rd(reg)&mask == want {
			return true
		}
		if late == pollGrace {
			c.timeouts.Add(1)
			return false
		}
		time.Sleep(pause)
		pause = min(pause*2, pollMax)
	}
}

// invalidate makes the card drop its translations through the given directories, or all
// of them if none or too many are given. It waits until no access uses an old one: every
// step under way at the call has ended. Translations of other guests stay cached.
func (c *control) invalidate(dirs ...uint64) bool {
	join := func(k *batch) {
		k.dirs = append(k.dirs, dirs...)
		k.allDirs = k.allDirs || len(dirs) == 0 || len(k.dirs) > c.maxDirs
	}
	return c.invalidating.do(join, func(k *batch) bool {
		c.mu.Lock()
		if k.allDirs {
			c.wr(regInvalidatePDB, 0)
			c.wr(regInvalidate, gf100.InvalidateGo|gf100.InvalidateAllDirs|gf100.InvalidateAllPages)
		} else {
			for _, dir := range k.dirs {
				c.wr(regInvalidatePDB, uint32(dir>>12)<<4|uint32(shadowpt.VRAM))
				c.wr(regInvalidate, gf100.InvalidateGo|gf100.InvalidateAllPages)
			}
		}
		c.mu.Unlock()
		return c.await(regMMUCtrl, gf100.InvalidateDone, gf100.InvalidateDone)
	})
}

// commitRunlist gives the card the list of channels and waits until removed channels have
// left. list runs when the operation begins, so it includes everything listed before
// commitRunlist was called.
func (c *control) commitRunlist(list func() []uint8) bool {
	return c.committing.do(nil, func(*batch) bool {
		c.writeRunlist(list())
		return c.await(regEngRunlist, gf100.RunlistPending, 0)
	})
}

// tryRunlist is commitRunlist without a wait, if none is under way. If it returns false
// the card may still be processing the list: the caller must commit it again.
func (c *control) tryRunlist(list func() []uint8) bool {
	return c.committing.try(func() bool {
		if c.rd(regEngRunlist)&gf100.RunlistPending != 0 {
			return false // the card may be reading a list whose wait timed out
		}
		c.writeRunlist(list())
		return c.rd(regEngRunlist)&gf100.RunlistPending == 0
	})
}

func (c *control) writeRunlist(ids []uint8) {
	buf := make([]byte, 0, gf100.Channels*gf100.RunlistEntrySize)
	for _, id := range ids {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		buf = binary.LittleEndian.AppendUint32(buf, 4)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active ^= 1
	addr := c.runlists[c.active]
	c.card.WriteVRAM(addr, buf)
	c.wr(regRunlistBase, uint32(addr>>12))
	c.wr(regRunlist, 0x01f00000|uint32(len(ids)))
}

// preempt makes channels leave their PBDMAs, one after the other: the register takes one
// at a time.
func (c *control) preempt(ids ...uint8) bool {
	join := func(k *batch) {
		for _, id := range ids {
			k.ids.add(id)
		}
	}
	return c.preempting.do(join, func(k *batch) bool {
		ok := true
		k.ids.each(func(id uint8) {
			c.mu.Lock()
			c.wr(regPreempt, uint32(id))
			c.mu.Unlock()
			ok = ok && c.await(regPreempt, gf100.PreemptPending, 0)
		})
		return ok
	})
}

// tryPreempt is preempt of one channel without a wait, if none is under way. If it returns
// false the caller must preempt again.
func (c *control) tryPreempt(id uint8) bool {
	return c.preempting.try(func() bool {
		if c.rd(regPreempt)&gf100.PreemptPending != 0 {
			return false
		}
		c.mu.Lock()
		c.wr(regPreempt, uint32(id))
		c.mu.Unlock()
		return c.rd(regPreempt)&gf100.PreemptPending == 0
	})
}

// running reports whether a channel is on a PBDMA.
func (c *control) running(id uint8) bool {
	return c.rd(regChannel+uint32(id)*strideChannel)&gf100.ChannelBusy != 0
}

// quiet reports whether a channel has nothing left to do: PBDMA and engine have completed
// what it fetched, and it fetches no more before the next doorbell.
func (c *control) quiet(id uint8) bool {
	return c.rd(regChannel+uint32(id)*strideChannel)&(gf100.ChannelBusy|gf100.ChannelStatus) == 0
}

// bind, unbind, enable and disable are single writes and need no sequence.
func (c *control) bind(id uint8, inst uint64) {
	c.wr(regChannelInst+uint32(id)*strideChannel, instanceBound|uint32(inst>>12))
}

func (c *control) unbind(id uint8) { c.wr(regChannelInst+uint32(id)*strideChannel, 0) }

func (c *control) enable(id uint8) { c.wr(regChannel+uint32(id)*strideChannel, channelStart) }

func (c *control) disable(id uint8) {
	c.wr(regChannel+uint32(id)*strideChannel, channelStart&^gf100.ChannelEnabled)
}

// doorbell writes a channel's GP_PUT.
func (c *control) doorbell(id uint8, put uint32) {
	b := c.word()
	defer c.words.Put(b)
	binary.LittleEndian.PutUint32(b[:], put)
	c.card.WriteBAR(card.BAR1, pollAreaBAR1+uint64(id)*gf100.USERDSize+gf100.USERDGPPut, b[:4])
}
