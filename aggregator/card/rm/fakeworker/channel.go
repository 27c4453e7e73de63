package fakeworker

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

// channel is what a channel has between two steps.
type channel struct {
	cfg                 worker.Channel
	id                  uint32
	on, paused, stopped bool
	get                 uint32
	base                uint64   // bits 56:40 of segments
	words               []uint32 // of the segment
	host                [0x100]uint32
	copy                [0x800]uint32
}

// report is what Events gets after a step.
type report struct {
	completed bool
	fault     bool
	va        uint64
	xid       uint32
}

// run executes what channels have after a doorbell.
func (w *Worker) run() {
	waiting := false
	for {
		select {
		case <-w.done:
			return
		default:
		}
		if takeBell(w.bell) == 0 && !waiting {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		waiting = w.round()
	}
}

// round has each channel execute all that it can. waiting says that one has work left.
func (w *Worker) round() (waiting bool) {
	w.mu.Lock()
	ids := make([]uint32, 0, len(w.channels))
	for id := range w.channels {
		ids = append(ids, id)
	}
	w.mu.Unlock()
	for _, id := range ids {
		for more := true; more; {
			var r report
			w.mu.Lock()
			c := w.channels[id]
			ready := c != nil && !w.dead && !c.stopped
			work := ready && (len(c.words) > 0 || c.get != w.put(c))
			if more = work && c.on && !c.paused && !w.frozen; more {
				r, more = w.next(c)
			}
			waiting = waiting || work && !more
			w.mu.Unlock()
			if r.completed {
				w.events.Completed(c.cfg.Engine)
			}
			if r.fault {
				w.events.Stopped(id, r.xid, nvrm.Fault{VA: r.va, Text: "FAULT_PTE"})
			}
		}
	}
	if waiting {
		time.Sleep(50 * time.Microsecond)
	}
	return waiting
}

func (w *Worker) own(c *channel) []byte { return w.objects[c.cfg.Own].mem }

func (w *Worker) put(c *channel) uint32 {
	return atomic.LoadUint32(word(w.own(c), c.cfg.USERD+nvrm.USERDPut))
}

// next executes an entry, or what is left of one. more is false if the channel waits.
func (w *Worker) next(c *channel) (r report, more bool) {
	if len(c.words) == 0 {
		var e [8]byte
		if !w.access(c, c.cfg.Ring+uint64(c.get)*8, e[:], false, &r) {
			return r, false
		}
		lo, hi := binary.LittleEndian.Uint32(e[:]), binary.LittleEndian.Uint32(e[4:])
		c.get = (c.get + 1) % c.cfg.Entries
		atomic.StoreUint32(word(w.own(c), c.cfg.USERD+nvrm.USERDGet), c.get)
		n := hi >> 10 & 0x1fffff
		if n == 0 {
			if hi&0xff == 4 {
				c.base = uint64(lo>>8&0x1ffff) << 40
			}
			return r, true
		}
		b := make([]byte, n*4)
		if !w.access(c, c.base|uint64(hi&0xff)<<32|uint64(lo&^3), b, false, &r) {
			return r, false
		}
		for ; len(b) > 0; b = b[4:] {
			c.words = append(c.words, binary.LittleEndian.Uint32(b))
		}
	}
	return r, w.commands(c, &r)
}

// commands executes the words of a segment up to one that waits.
func (w *Worker) commands(c *channel, r *report) bool {
	for len(c.words) > 0 {
		h := c.words[0]
		n, sub, m := int(h>>16&0x1fff), h>>13&7, h&0xfff
		data := c.words[1:]
		if h>>29 == 4 {
			data, n = []uint32{uint32(n)}, 1
			c.words = c.words[1:]
		} else if data = data[:min(n, len(data))]; h>>29 != 1 || len(data) < n {
			return c.stop(r, 32, 0)
		} else {
			c.words = c.words[1+n:]
		}
		for i, d := range data {
			if !w.method(c, sub, m+uint32(i), d, r) {
				if !r.fault { // it waits: the same command again
					c.words = append(append([]uint32{h}, data...), c.words...)
				}
				return false
			}
		}
	}
	return true
}

func (c *channel) stop(r *report, xid uint32, va uint64) bool {
	*r = report{fault: true, xid: xid, va: va}
	c.stopped, c.words = true, nil
	return false
}

// method executes a method, by its number of words.
func (w *Worker) method(c *channel, sub, m, d uint32, r *report) bool {
	const nonStall, execute, launch, source = 0x20 / 4, 0x6c / 4, 0x300 / 4, 0x400 / 4
	switch {
	case m < 0x100/4:
		c.host[m] = d
		if m == nonStall {
			r.completed = true
		}
		return m != execute || w.semaphore(c, d, r)
	case sub == 4 && m == launch:
		return w.launch(c, c.copy[source:], r)
	}
	c.copy[m] = d
	return true
}

func (w *Worker) semaphore(c *channel, d uint32, r *report) bool {
	const address, payload, release, stamped = 0x5c / 4, 0x64 / 4, 1, 1 << 25
	va := uint64(c.host[address+1])<<32 | uint64(c.host[address])
	var b [16]byte
	if d&7 != release {
		return w.access(c, va, b[:4], false, r) && binary.LittleEndian.Uint32(b[:]) == c.host[payload]
	}
	n := 4
	if binary.LittleEndian.PutUint32(b[:], c.host[payload]); d&stamped != 0 {
		binary.LittleEndian.PutUint64(b[8:], uint64(time.Since(w.began)))
		if n = 16; !w.access(c, va+4, b[4:n], true, r) {
			return false
		}
	}
	return w.access(c, va, b[:4], true, r)
}

// launch copies lines: x are source, destination, pitches, bytes and lines.
func (w *Worker) launch(c *channel, x []uint32, r *report) bool {
	src, dst := uint64(x[0])<<32|uint64(x[1]), uint64(x[2])<<32|uint64(x[3])
	b := make([]byte, x[6])
	for range x[7] {
		if !w.access(c, src, b, false, r) || !w.access(c, dst, b, true, r) {
			return false
		}
		src, dst = src+uint64(x[4]), dst+uint64(x[5])
	}
	return true
}

// access copies memory of the channel's space. It stops the channel at an address without a page.
func (w *Worker) access(c *channel, va uint64, p []byte, write bool, r *report) bool {
	for len(p) > 0 {
		x, ok := w.spaces[c.cfg.Space].pages[va/page]
		if !ok || write && x.readOnly {
			return c.stop(r, 31, va)
		}
		mem := w.objects[x.object].mem[x.off+va%page : x.off+page]
		n := min(len(mem), len(p))
		switch {
		case write && len(p) == 4: // a semaphore's
			atomic.StoreUint32(word(mem, 0), binary.LittleEndian.Uint32(p))
		case write:
			copy(mem, p[:n])
		default:
			copy(p[:n], mem)
		}
		va, p = va+uint64(n), p[n:]
	}
	return true
}
