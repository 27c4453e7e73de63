// Package cards has two cards for tests. They show that the interfaces of package card suit
// cards other than the software GF100: [Plain] has registers and nothing that is optional;
// [Direct] has no registers at all.
package cards

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// VRAM is in banks with gaps between, so that most guests get several runs. Page tables have
// addresses where there is no VRAM.
const (
	bankSize   = 13<<20 + shadowpt.BigPage
	bankStride = 16 << 20
	firstBank  = 0x3_4560_0000
	firstTable = 0xc1_2345_7000
)

// Direct is a card.GPU without registers, USERD or instance blocks. It keeps no state of a
// channel that was freed. One goroutine, from New to Close, runs the channels and delivers
// their events.
//
// Locks, in the order they are taken: delivering is held while events are delivered. mu guards
// all the rest. It is held during each step of a channel, so every method that takes it finds
// the channels between two steps.
type Direct struct {
	cfg        soft.Config
	start      time.Time
	delivering sync.Mutex
	wake       chan struct{} // capacity 1: a channel may have work
	closing    chan struct{}
	done       sync.WaitGroup

	mu        sync.Mutex
	banks     [][]byte
	free      vram.Allocator
	nextTable uint64 // no address is used twice
	mappings  card.Mappings
	wrote     []func() // reports of what the step under way wrote
	shares    []*share
	channels  [gf100.Channels]*channel // by number
	events    []event
	stats     engine.Stats
}

// event is a report about a channel, which rests until it is delivered.
type event struct {
	ch   *channel
	tell func(card.ChannelEvents)
}

var _ card.GPU = (*Direct)(nil)

// NewDirect makes a card. It uses VRAM and Watch of the configuration.
func NewDirect(cfg soft.Config) *Direct {
	d := &Direct{cfg: cfg, start: time.Now(), wake: make(chan struct{}, 1), closing: make(chan struct{}), nextTable: firstTable}
	for at := uint64(firstBank); uint64(len(d.banks))*bankSize < cfg.VRAM; at += bankStride {
		d.banks = append(d.banks, make([]byte, bankSize))
		d.free.Release(card.Run{Addr: at, Size: bankSize})
	}
	d.done.Add(1)
	go d.run()
	return d
}

// lock takes mu and returns what gives it back.
func (d *Direct) lock() (unlock func()) {
	d.mu.Lock()
	return d.mu.Unlock
}

// Close implements card.GPU.
func (d *Direct) Close() {
	close(d.closing)
	d.done.Wait()
}

// Time implements card.GPU.
func (d *Direct) Time() uint64 { return uint64(time.Since(d.start)) }

// Meter implements card.GPU.
func (d *Direct) Meter() card.Meter { return nil }

// Relocator implements card.GPU.
func (d *Direct) Relocator() card.Relocator { return nil }

// vram returns the n bytes at addr, nil unless all are in one bank.
func (d *Direct) vram(addr uint64, n int) []byte {
	bank, off := (addr-firstBank)/bankStride, (addr-firstBank)%bankStride
	if bank >= uint64(len(d.banks)) || off+uint64(n) > bankSize {
		return nil
	}
	return d.banks[bank][off:][:n]
}

// memory returns the n bytes at addr of VRAM or of the guests' memory, nil unless all are in one
// place.
func (d *Direct) memory(t shadowpt.Target, addr uint64, n int, write bool) []byte {
	if t == shadowpt.VRAM {
		return d.vram(addr, n)
	}
	m, off := d.mappings.At(addr, write)
	if !t.System() || m == nil || off+uint64(n) > uint64(len(m.Mem)) {
		return nil
	}
	if write && m.Wrote != nil {
		d.wrote = append(d.wrote, func() { m.Wrote(off, uint64(n)) })
	}
	return m.Mem[off:][:n]
}

// ReadVRAM implements card.Memory.
func (d *Direct) ReadVRAM(addr uint64, p []byte) bool {
	defer d.lock()()
	return copy(p, d.vram(addr, len(p))) == len(p)
}

// WriteVRAM implements card.Memory.
func (d *Direct) WriteVRAM(addr uint64, p []byte) bool {
	defer d.lock()()
	return copy(d.vram(addr, len(p)), p) == len(p)
}

// SameVRAM implements card.Memory.
func (d *Direct) SameVRAM(addr uint64, p []byte) bool {
	defer d.lock()()
	return bytes.Equal(d.vram(addr, len(p)), p)
}

// ScrubVRAM implements card.Memory.
func (d *Direct) ScrubVRAM(addr, n uint64) error {
	defer d.lock()()
	mem := d.vram(addr, int(n))
	if mem == nil {
		return fmt.Errorf("cards: no memory at %#x+%#x", addr, n)
	}
	clear(mem)
	return nil
}

// LookVRAM calls f with the n bytes at addr. f must not call the card.
func (d *Direct) LookVRAM(addr, n uint64, f func(at uint64, p []byte)) {
	defer d.lock()()
	f(addr, d.vram(addr, int(n)))
}

// AllocVRAM implements card.GPU.
func (d *Direct) AllocVRAM(size, align uint64) ([]card.Run, error) {
	defer d.lock()()
	runs, err := d.free.Alloc(size, align)
	for _, r := range runs {
		clear(d.vram(r.Addr, int(r.Size)))
	}
	return runs, err
}

// FreeVRAM implements card.GPU.
func (d *Direct) FreeVRAM(runs ...card.Run) {
	defer d.lock()()
	d.free.Release(runs...)
}

// FreeBytes implements card.GPU.
func (d *Direct) FreeBytes() uint64 {
	defer d.lock()()
	return d.free.Left()
}

// MapDMA implements card.DMA.
func (d *Direct) MapDMA(addr uint64, m card.Mapping) error {
	defer d.lock()()
	return d.mappings.Map(addr, m)
}

// UnmapDMA implements card.DMA.
func (d *Direct) UnmapDMA(addr, n uint64) {
	defer d.lock()()
	d.mappings.Unmap(addr, n)
}

// Preempt implements card.GPU. No step is under way.
func (d *Direct) Preempt(...card.Channel) bool {
	defer d.lock()()
	return true
}

// delivered lets a channel go on after one of its events.
func (d *Direct) delivered(ch *channel) {
	defer d.lock()()
	ch.holds--
	d.ring()
}

// Serving implements card.GPU: it does not tell.
func (d *Direct) Serving(int) card.ChannelEvents { return nil }

// Poll implements card.GPU.
func (d *Direct) Poll() {
	d.delivering.Lock()
	defer d.delivering.Unlock()
	d.mu.Lock()
	events := d.events
	d.events = nil
	d.mu.Unlock()
	for _, e := range events {
		e.tell(e.ch.ev)
		d.delivered(e.ch)
	}
}

// ring makes the goroutine look for work.
func (d *Direct) ring() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *Direct) run() {
	defer d.done.Done()
	debug.SetPanicOnFault(true) // guest memory belongs to another process, which may truncate it
	for {
		worked, waiting := false, false
		for id := range d.channels {
			w, more := d.step(id)
			worked, waiting = worked || w, waiting || more
		}
		d.Poll()
		if worked {
			continue
		}
		var retry <-chan time.Time
		if waiting { // for memory to change
			retry = time.After(100 * time.Microsecond)
		}
		select {
		case <-d.wake:
		case <-retry:
		case <-d.closing:
			return
		}
	}
}

// step runs a channel for a bounded piece of work. It reports whether the channel got on, and
// whether it has work left.
func (d *Direct) step(id int) (worked, more bool) {
	defer d.lock()()
	ch := d.channels[id]
	if ch == nil {
		return false, false
	}
	defer func() {
		for _, report := range d.wrote {
			report()
		}
		d.wrote = d.wrote[:0]
		if card.MemoryFault(recover()) {
			ch.fault(gf100.ClientHost, engine.Fault{VA: ch.va, Reason: uint8(shadowpt.PageNotPresent)})
		}
	}()
	ch.env.Begin(d.Time() + uint64(time.Millisecond/2))
	for n := 0; n < 1000 && !ch.env.Over() && ch.holds == 0 && ch.hasWork() && ch.advance(); n++ {
		worked = true
	}
	return worked, ch.holds == 0 && ch.hasWork()
}

// share is one guest's part of the card. It implements card.Share, and shadowpt.Memory for the
// card's own walks.
type share struct {
	d      *Direct
	cfg    card.ShareConfig
	left   uint64                  // bytes for tables
	tables map[uint64]*[512]uint64 // pages of them, by address
}

// NewShare implements card.GPU.
func (d *Direct) NewShare(c card.ShareConfig) (card.Share, error) {
	defer d.lock()()
	left := len(d.channels)
	for _, s := range d.shares {
		left -= s.cfg.Guaranteed
	}
	if c.Guaranteed > left {
		return nil, fmt.Errorf("cards: %d guaranteed channels: at most %d are left", c.Guaranteed, left)
	}
	s := &share{d: d, cfg: c, left: c.Tables, tables: make(map[uint64]*[512]uint64)}
	d.shares = append(d.shares, s)
	return s, nil
}

func (s *share) Close(bool) {
	defer s.d.lock()()
	s.d.shares = slices.DeleteFunc(s.d.shares, func(o *share) bool { return o == s })
}

func (s *share) Memory() []card.Run { return nil }
func (s *share) Tables() []card.Run { return nil }

func (s *share) AllocTable(n uint64) (addr uint64, ok bool) {
	defer s.d.lock()()
	if n = vram.WholePages(n); n > s.left {
		return 0, false
	}
	addr = s.d.nextTable
	s.d.nextTable += n + vram.PageSize
	s.left -= n
	for at := addr; at < addr+n; at += vram.PageSize {
		s.tables[at] = new([512]uint64)
	}
	return addr, true
}

func (s *share) FreeTable(addr, n uint64) {
	defer s.d.lock()()
	n = vram.WholePages(n)
	s.left += n
	for at := addr; at < addr+n; at += vram.PageSize {
		delete(s.tables, at)
	}
}

func (s *share) WriteTable(addr uint64, p []byte) {
	defer s.d.lock()()
	for ; len(p) > 0; addr, p = addr+8, p[8:] {
		s.tables[addr&^(vram.PageSize-1)][addr/8%512] = le.Uint64(p)
	}
}

func (s *share) Read64(_ shadowpt.Target, addr uint64) (uint64, bool) {
	page := s.tables[addr&^(vram.PageSize-1)]
	if page == nil {
		return 0, false
	}
	return page[addr/8%512], true
}

func (s *share) Invalidate(dirs ...uint64) bool {
	defer s.d.lock()()
	for _, ch := range s.d.channels {
		if ch != nil && ch.share == s && slices.Contains(dirs, ch.cfg.Dir) {
			ch.tlb.Flush()
		}
	}
	return true
}

func (s *share) Commit() bool {
	defer s.d.lock()()
	for _, ch := range s.d.channels {
		if ch != nil && ch.share == s && !ch.committed {
			ch.committed = true
			ch.holds--
		}
	}
	s.d.ring()
	return true
}
