package fakerm

import (
	"encoding/binary"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// channel is what a channel has between two steps.
type channel struct {
	driver   *Driver
	client   *client
	engine   uint32
	space    *object
	own      *object // memory with the notifier and USERD
	userd    uint64
	ring     uint64
	entries  uint32
	disabled bool
	stopped  bool
	fault    uint64 // address of the last MMU fault

	get   uint32
	base  uint64   // bits 56:40 of segments
	words []uint32 // of the segment
	host  [0x100]uint32
	copy  [0x800]uint32
}

// run executes what a client's channels have after a doorbell, until that is freed.
func (d *Driver) run(c *client, bell *object) {
	const interval = 50 * time.Microsecond
	for waiting := false; ; {
		d.mu.Lock()
		if bell.view == nil {
			d.mu.Unlock()
			return
		}
		var list []*channel
		if load(bell.view, nvrm.DoorbellOffset) != 0 || waiting {
			store(bell.view, nvrm.DoorbellOffset, 0)
			for _, o := range c.objects {
				if o.channel != nil {
					list = append(list, o.channel)
				}
			}
		}
		d.mu.Unlock()
		waiting = false
		for _, ch := range list {
			for more := true; more; {
				d.mu.Lock()
				work := !ch.stopped && (len(ch.words) > 0 || ch.get != load(ch.own.view, ch.userd+nvrm.USERDPut))
				more = work && !ch.disabled && !d.frozen && ch.next()
				waiting = waiting || work && !more
				d.mu.Unlock()
			}
		}
		if len(list) == 0 || waiting {
			time.Sleep(interval)
		}
	}
}

// next executes an entry, or what is left of one. more is false if the channel waits.
func (c *channel) next() (more bool) {
	if len(c.words) == 0 {
		var e [8]byte
		if !c.access(c.ring+uint64(c.get)*8, e[:], false) {
			return false
		}
		lo, hi := binary.LittleEndian.Uint32(e[:]), binary.LittleEndian.Uint32(e[4:])
		c.get = (c.get + 1) % c.entries
		store(c.own.view, c.userd+nvrm.USERDGet, c.get)
		n := hi >> 10 & 0x1fffff
		if n == 0 {
			if hi&0xff == 4 {
				c.base = uint64(lo>>8&0x1ffff) << 40
			}
			return true
		}
		b := make([]byte, n*4)
		if !c.access(c.base|uint64(hi&0xff)<<32|uint64(lo&^3), b, false) {
			return false
		}
		for ; len(b) > 0; b = b[4:] {
			c.words = append(c.words, binary.LittleEndian.Uint32(b))
		}
	}
	return c.commands()
}

// commands executes the words of a segment up to one that waits.
func (c *channel) commands() bool {
	for len(c.words) > 0 {
		h := c.words[0]
		n, sub, m := int(h>>16&0x1fff), h>>13&7, h&0xfff
		data := c.words[1:]
		if h>>29 == 4 {
			data, n = []uint32{uint32(n)}, 1
			c.words = c.words[1:]
		} else if data = data[:min(n, len(data))]; h>>29 != 1 || len(data) < n {
			return c.stop(32)
		} else {
			c.words = c.words[1+n:]
		}
		for i, d := range data {
			if !c.method(sub, m+uint32(i), d) {
				if !c.stopped { // it waits: the same command again
					c.words = append(append([]uint32{h}, data...), c.words...)
				}
				return false
			}
		}
	}
	return true
}

// stop stops the channel: the notifier says so, then an event.
func (c *channel) stop(xid uint32) bool {
	c.stopped, c.words = true, nil
	put(c.own.view, nvrm.NotifierXid, xid)
	c.own.view[nvrm.NotifierStatus], c.own.view[nvrm.NotifierStatus+1] = 0xff, 0xff
	c.driver.post(c.client, notifyError)
	return false
}

// method executes a method, by its number of words.
func (c *channel) method(sub, m, d uint32) bool {
	const event, execute, launch, source = 0x20 / 4, 0x6c / 4, 0x300 / 4, 0x400 / 4
	switch {
	case m < 0x100/4:
		c.host[m] = d
		if m == event {
			c.driver.post(c.client, notifierOf(c.engine)|nonStall)
		}
		return m != execute || c.semaphore(d)
	case sub == 4 && m == launch:
		return c.launch(c.copy[source:])
	}
	c.copy[m] = d
	return true
}

func (c *channel) semaphore(d uint32) bool {
	const address, payload, release, stamped = 0x5c / 4, 0x64 / 4, 1, 1 << 25
	va := uint64(c.host[address+1])<<32 | uint64(c.host[address])
	var b [16]byte
	if d&7 != release {
		return c.access(va, b[:4], false) && binary.LittleEndian.Uint32(b[:]) == c.host[payload]
	}
	n := 4
	if binary.LittleEndian.PutUint32(b[:], c.host[payload]); d&stamped != 0 {
		binary.LittleEndian.PutUint64(b[8:], uint64(time.Now().UnixNano()))
		if n = 16; !c.access(va+4, b[4:n], true) {
			return false
		}
	}
	return c.access(va, b[:4], true)
}

// launch copies lines: x are source, destination, pitches, bytes and lines.
func (c *channel) launch(x []uint32) bool {
	src, dst := uint64(x[0])<<32|uint64(x[1]), uint64(x[2])<<32|uint64(x[3])
	b := make([]byte, x[6])
	for range x[7] {
		if !c.access(src, b, false) || !c.access(dst, b, true) {
			return false
		}
		src, dst = src+uint64(x[4]), dst+uint64(x[5])
	}
	return true
}

// access copies memory of the channel's space. It stops the channel at an address without a page.
func (c *channel) access(va uint64, p []byte, write bool) bool {
	for len(p) > 0 {
		mem, readOnly := c.space.at(va)
		if mem == nil || write && readOnly {
			c.fault = va
			return c.stop(31)
		}
		n := min(len(mem), len(p))
		switch {
		case write && len(p) == 4: // a semaphore's
			store(mem, 0, binary.LittleEndian.Uint32(p))
		case write:
			copy(mem, p[:n])
		default:
			copy(p[:n], mem)
		}
		va, p = va+uint64(n), p[n:]
	}
	return true
}
