package gh100

import (
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// Engine is one that channels run on, by its number in calls, with its runlist.
type Engine struct{ Type, Runlist uint32 }

// The engines.
var (
	Graphics = Engine{1, 0}
	Copy0    = Engine{9, 0}
	Copy1    = Engine{10, 1}
)

const (
	ringEntries = pageSize / 8
	pushSize    = 64 << 10
)

// Channel is a channel with its ring, its push buffer and its fence in RAM.
type Channel struct {
	*Space
	ID     uint32
	Engine Engine
	USERD  uint64 // in VRAM

	ring, push, fence []byte
	pushVA, fenceVA   uint64
	userd             uint64 // in BAR1
	put, pushed, seq  uint32
	err               error
}

// NewChannel makes a channel that runs, with an object to copy.
func (s *Space) NewChannel(id uint32, e Engine) *Channel {
	c := &Channel{Space: s, ID: id, Engine: e, USERD: s.AllocVRAM(pageSize)}
	s.WriteVRAM(c.USERD, make([]byte, pageSize))
	c.userd = s.MapBAR1(c.USERD)
	addr, p := s.AllocRAM(2*pageSize + pushSize)
	c.ring, c.fence, c.push = p[:pageSize], p[pageSize:], p[2*pageSize:]
	ring := s.Map(RAM, addr, uint64(len(p)))
	c.fenceVA, c.pushVA = ring+pageSize, ring+2*pageSize
	s.must(s.Alloc(s.Client, device, channel+id, 0xc86f, Fields{
		8: ring, 0x10: ringEntries, 0x14: uint64(id/8<<12 | id%8<<8), 0x1c: space, 0x80: uint64(e.Type),
		0x90: s.AllocVRAM(pageSize), 0x98: pageSize, 0xa0: 2, 0xa8: c.USERD, 0xb0: 0x200, 0xb8: 2,
	}.Bytes(0x170)))
	s.must(s.Control(s.Client, channel+id, 0xa06f0104, Fields{0: uint64(e.Type)}.Bytes(4)))
	c.Schedule(1)
	s.must(s.Alloc(s.Client, channel+id, 0xc8b50000+id, 0xc8b5, Fields{0: 1, 4: uint64(e.Type)}.Bytes(8)))
	return c
}

// Schedule lets the channel run, or with 0 stops it.
func (c *Channel) Schedule(on byte) {
	c.must(c.Control(c.Client, channel+c.ID, 0xa06f0103, []byte{on, 0}))
}

// Close frees the channel.
func (c *Channel) Close() { c.must(c.Free(c.Client, channel+c.ID)) }

// Submit submits commands, and after them the channel's fence with an interrupt. It returns the fence's
// number.
func (c *Channel) Submit(words ...uint32) (seq uint32) {
	if c.seq-le.Uint32(c.fence) >= ringEntries-1 || 4*(c.pushed+uint32(len(words))+8) > pushSize { // the buffer is free once all is done
		c.Wait(c.seq)
		c.pushed = 0
	}
	c.seq++
	var b push.Buffer
	b.Raw(words...).HopperRelease(c.fenceVA, c.seq).NonStall(push.HopperCopy)
	for i, w := range b.Words {
		le.PutUint32(c.push[4*(int(c.pushed)+i):], w)
	}
	va, n := c.pushVA+4*uint64(c.pushed), uint32(len(b.Words))
	c.pushed += n
	c.Push(va | uint64(n)<<42)
	return c.seq
}

// Push puts any entry into the ring, and rings the doorbell.
func (c *Channel) Push(entry uint64) {
	le.PutUint64(c.ring[8*c.put:], entry)
	c.put = (c.put + 1) % ringEntries
	p := le.AppendUint32(nil, c.put)
	c.Bus.WriteBAR(1, c.userd+0x8c, p)
	c.Bus.ReadBAR(1, c.userd+0x8c, p)
	c.Write32(0xbb0090, c.Engine.Runlist<<16|c.ID)
}

// Done reports whether a fence has passed.
func (c *Channel) Done(seq uint32) bool { return int32(le.Uint32(c.fence)-seq) >= 0 }

// Wait waits for a fence.
func (c *Channel) Wait(seq uint32) {
	if err := c.Until(seq); err != nil {
		c.Fail(err)
	}
}

// Until waits for a fence, and returns why the GPU stopped the channel before, if it did.
func (c *Channel) Until(seq uint32) (err error) {
	c.Driver.Wait(fmt.Sprintf("fence %d of channel %d", seq, c.ID), func() bool {
		if c.Done(seq) {
			if seq == c.seq {
				c.pushed = 0
			}
			return true
		}
		err = c.Err()
		return err != nil
	})
	return err
}

// Err returns why the GPU stopped the channel, if it did.
func (c *Channel) Err() error {
	for m, there := c.Receive(); there; m, there = c.Receive() {
		c.Events = append(c.Events, m)
	}
	c.Events = slices.DeleteFunc(c.Events, func(m Message) bool {
		if m.Function != 0x1004 || le.Uint32(m.Payload[4:]) != c.ID {
			return false
		}
		c.err = fmt.Errorf("guest/gh100: channel %d: error %d at VA %#x", c.ID, le.Uint32(m.Payload[0x10:]), le.Uint64(m.Payload[0x1c:]))
		return true
	})
	return c.err
}

// Copy returns the commands that copy n bytes.
func Copy(dst, src uint64, n uint32) []uint32 {
	var b push.Buffer
	b.Bind(push.HopperCopy).CopyLines(push.HopperCopy, push.Surface{VA: dst, Pitch: n}, push.Surface{VA: src, Pitch: n}, n, 1)
	return b.Words
}
