package soft_test

import (
	"encoding/binary"
	"testing"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Virtual addresses that every channel of the rig uses.
const (
	vaRing = 0x10000
	vaPush = 0x20000  // pushbuffer
	vaSem  = 0x60000  // one page of semaphores
	vaData = 0x100000 // 1 MiB of VRAM
	vaRAM  = 0x400000 // all of the host's memory
	vaHole = 0x3000000

	ringLog2 = 6
	pushSize = 0x20000
)

// Classes with their engines, as SET_OBJECT takes them.
const (
	classM2MF     = 0x9039
	classCE0      = 0x0490b5
	classCE1      = 0x0590b5
	classSoftware = 0x1f906e
)

// testChannel is a channel of the rig.
type testChannel struct {
	r                     *rig
	id                    uint32
	space                 *space
	inst, userd           uint64
	ring, push, sem, data uint64 // in VRAM
	put                   uint32
	at                    uint64 // next free byte of the pushbuffer
	last                  uint64 // the last GPFIFO entry
}

// newChannel builds a channel, binds and enables it; area is the poll area.
func (r *rig) newChannel(id uint32, area uint64) *testChannel {
	c := &testChannel{r: r, id: id, space: r.newSpace(), userd: area + uint64(id)*gf100.USERDSize}
	c.ring, c.push = r.alloc(0x1000), r.alloc(pushSize)
	c.sem, c.data = r.alloc(0x1000), r.alloc(1<<20)
	c.space.mapVRAM(vaRing, c.ring, 0x1000)
	c.space.mapVRAM(vaPush, c.push, pushSize)
	c.space.mapVRAM(vaSem, c.sem, 0x1000)
	c.space.mapVRAM(vaData, c.data, 1<<20)
	c.space.mapRAM(vaRAM, 0, ramSize)
	c.inst = r.instance(c.space, shadowpt.VASize-1)
	c.ramfc(func(b []byte) {
		gf100.InstUSERDLo.Put(b, uint32(c.userd>>12))
		gf100.InstSignature.Put(b, gf100.InstanceSignature)
		gf100.InstGPBaseLo.Put(b, vaRing>>3)
		gf100.InstGPLimit2.Put(b, ringLog2)
	})
	c.bind()
	c.enable()
	return c
}

// ramfc edits the instance block.
func (c *testChannel) ramfc(edit func(b []byte)) {
	b := c.r.vramRead(c.inst, gf100.InstanceSize)
	edit(b)
	c.r.vramWrite(c.inst, b)
}

func (c *testChannel) bind()    { c.r.wr(0x3000+c.id*8, 0xc0000000|uint32(c.inst>>12)) }
func (c *testChannel) unbind()  { c.r.wr(0x3000+c.id*8, 0) }
func (c *testChannel) enable()  { c.r.wr(0x3004+c.id*8, 0x001f0001) }
func (c *testChannel) disable() { c.r.wr(0x3004+c.id*8, 0x001f0000) }

// kick preempts the channel and waits until it has left.
func (c *testChannel) kick() {
	c.r.t.Helper()
	c.r.wr(0x2634, c.id)
	c.r.eventually("preempted", func() bool { return c.r.rd(0x2634) == c.id })
}

// rig of one channel that is ready to run.
func newChannelRig(t testing.TB, cfg soft.Config) (*rig, *testChannel) {
	r := newRig(t, cfg)
	c := r.newChannel(1, r.bar1())
	r.runlist(1)
	return r, c
}

// newChannels is a rig of n channels, numbered from 1.
func newChannels(t testing.TB, n int) (*rig, []*testChannel) {
	return newChannelsOf(t, n, soft.Config{})
}

func newChannelsOf(t testing.TB, n int, cfg soft.Config) (*rig, []*testChannel) {
	r := newRig(t, cfg)
	area := r.bar1()
	var cs []*testChannel
	var ids []uint32
	for i := range uint32(n) {
		cs = append(cs, r.newChannel(i+1, area))
		ids = append(ids, i+1)
	}
	r.runlist(ids...)
	return r, cs
}

// runlist commits the channels and waits as a driver does.
func (r *rig) runlist(ids ...uint32) {
	r.t.Helper()
	r.commit(ids...)
	r.eventually("runlist update done", func() bool { return r.rd(0x2a00)&(1<<28) != 0 })
	r.wr(0x2a00, 1<<28)
}

func (r *rig) commit(ids ...uint32) {
	list := r.alloc(0x1000)
	for i, id := range ids {
		r.vramWrite32(list+uint64(i)*8, id)
		r.vramWrite32(list+uint64(i)*8+4, 4)
	}
	r.wr(0x2270, uint32(list>>12))
	r.wr(0x2274, 0x01f00000|uint32(len(ids)))
}

// pushWords writes words into the pushbuffer and returns their GPFIFO entry.
func (c *testChannel) pushWords(w ...uint32) uint64 {
	if c.at+uint64(len(w))*4 > pushSize {
		c.at = 0
	}
	b := make([]byte, 0, len(w)*4)
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	c.r.vramWrite(c.push+c.at, b)
	e := vaPush + c.at | uint64(len(w))<<42
	c.at += uint64(len(b))
	return e
}

// words places words and enters them in the ring, without the doorbell.
func (c *testChannel) words(w ...uint32) { c.entry(c.pushWords(w...)) }

func (c *testChannel) entry(q uint64) {
	c.last = q
	c.r.vramWrite64(c.ring+uint64(c.put)*8, q)
	c.put = (c.put + 1) & (1<<ringLog2 - 1)
}

func (c *testChannel) doorbell() { c.doorbellWith(c.put) }

func (c *testChannel) doorbellWith(put uint32) {
	c.r.write32(soft.BAR1, userdBAR1+uint64(c.id)*gf100.USERDSize+gf100.USERDGPPut, put)
}

func (c *testChannel) submit(w ...uint32) {
	c.words(w...)
	c.doorbell()
}

func (c *testChannel) userd32(off uint64) uint32 { return c.r.vram32(c.userd + off) }

// drained waits until everything submitted has been fetched.
func (c *testChannel) drained() {
	c.r.t.Helper()
	c.r.eventually("ring drained", func() bool { return c.userd32(gf100.USERDGPGet) == c.put })
}

func (c *testChannel) semaphore(i uint32) uint32 { return c.r.vram32(c.sem + uint64(i)*16) }

// waitSemaphore waits until the i-th semaphore holds v.
func (c *testChannel) waitSemaphore(i, v uint32) {
	c.r.t.Helper()
	c.r.eventually("semaphore released", func() bool { return c.semaphore(i) == v })
}

// alive proves that the channel executes.
func (c *testChannel) alive() {
	c.r.t.Helper()
	v := c.semaphore(255) + 1
	c.submit(release(255, v)...)
	c.waitSemaphore(255, v)
}

// Pushbuffer headers.
func header(op, count, subch, method uint32) uint32 {
	return op<<29 | count<<16 | subch<<13 | method>>2
}

func incr(subch, method uint32, data ...uint32) []uint32 {
	return append([]uint32{header(1, uint32(len(data)), subch, method)}, data...)
}

func nonIncr(subch, method uint32, data ...uint32) []uint32 {
	return append([]uint32{header(3, uint32(len(data)), subch, method)}, data...)
}

func cat(parts ...[]uint32) (out []uint32) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// Operations of SEMAPHORED.
const (
	opAcquire    = 1
	opRelease    = 2
	opAcquireGEq = 4
	opAcquireAnd = 8
	opWord       = 1 << 24
)

func semaphoreOp(va, payload, op uint32) []uint32 { return incr(0, 0x10, 0, va, payload, op) }

// release writes payload to the i-th semaphore, four words.
func release(i, payload uint32) []uint32 { return semaphoreOp(vaSem+i*16, payload, opRelease) }

// release32 writes payload alone, anywhere.
func release32(va, payload uint32) []uint32 { return semaphoreOp(va, payload, opRelease|opWord) }

func acquire(i, payload, op uint32) []uint32 { return semaphoreOp(vaSem+i*16, payload, op) }

// copyM2MF is a linear copy of one line.
func copyM2MF(dst, src, n uint32) []uint32 {
	return cat(incr(2, 0x238, 0, dst), incr(2, 0x30c, 0, src), incr(2, 0x31c, n, 1), incr(2, 0x300, 1<<4|1<<8))
}

// copyCE is the same on a copy engine.
func copyCE(subch, dst, src, n uint32) []uint32 {
	return cat(incr(subch, 0x30c, 0, src, 0, dst, n, n, n, 1), incr(subch, 0x300, 1<<4|1<<8))
}
