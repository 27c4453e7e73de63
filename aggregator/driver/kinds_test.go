package driver_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// kind is a class of channels, and what its programs look like.
type kind struct {
	class  uint16
	limit  uint64    // last address of its spaces
	object uint32    // the copy engine's class for SET_OBJECT
	copy   [2]uint32 // its first method of addresses, and what launches
	data   uint64    // where the clients have data, one page more than four
	// release and acquire are host methods on a word at data.
	release, acquire func(va uint64, payload uint32) []uint32
}

func incr(subch, method uint32, data ...uint32) []uint32 {
	return append([]uint32{1<<29 | uint32(len(data))<<16 | subch<<13 | method>>2}, data...)
}

func fermiSemaphore(op uint32) func(uint64, uint32) []uint32 {
	return func(va uint64, payload uint32) []uint32 {
		return incr(0, 0x10, uint32(va>>32), uint32(va), payload, op)
	}
}

func hopperSemaphore(op uint32) func(uint64, uint32) []uint32 {
	return func(va uint64, payload uint32) []uint32 {
		return incr(0, 0x5c, uint32(va), uint32(va>>32), payload, 0, op)
	}
}

var kinds = map[string]kind{
	"906f": {gf100.ChannelClass, shadowpt.Fermi.VASize() - 1, 4<<16 | 0x90b5, [2]uint32{0x30c, 0x110}, 0x40_0000, fermiSemaphore(2 | 1<<24), fermiSemaphore(1)},
	"c86f": {0xc86f, shadowpt.Hopper.VASize() - 1, 0xc8b5, [2]uint32{0x400, 2 | 3<<7 | 1<<9}, 0x123_4567_0000_0000, hopperSemaphore(1), hopperSemaphore(0)},
}

const (
	ringVA, pushVA = 0x1_0000, 0x2_0000
	log2           = 5
	tables         = 1 << 20
	page           = 4096
	patience       = time.Minute
	tick           = 100 * time.Microsecond
)

// rig is a software card with its driver, of which only memory beyond 32 bits is left. Watch may hold a
// step up.
type rig struct {
	card  *soft.Card
	gpu   *driver.Driver
	watch atomic.Pointer[func(channel uint32)]
}

func newRig(t require.TestingT, cfg soft.Config, timeout time.Duration) *rig {
	r := new(rig)
	var err error
	cfg.VRAM = 16 << 30
	cfg.Watch = func(id uint32, _ shadowpt.Target, _ uint64, _ int, _ bool) {
		if f := r.watch.Load(); f != nil {
			(*f)(id)
		}
	}
	r.card, err = soft.New(cfg)
	require.NoError(t, err)
	r.gpu, err = driver.New(r.card, driver.Options{Timeout: timeout})
	require.NoError(t, err)
	_, err = r.gpu.AllocVRAM(12<<30, page)
	require.NoError(t, err)
	return r
}

func (r *rig) close(t require.TestingT) {
	r.gpu.Close()
	require.NoError(t, r.card.Close())
}

// client is a share with a channel.
type client struct {
	kind
	t     require.TestingT
	gpu   card.GPU
	share card.Share
	space card.Space
	ch    card.Channel
	run   card.Run // its memory: ring, commands, data
	put   uint32

	mu        sync.Mutex
	completed card.EngineSet
	faults    []card.Fault
}

func (c *client) Completed(e card.EngineSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.completed |= e
}

func (c *client) Fault(f card.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, f)
}

func (c *client) events() (card.EngineSet, []card.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.completed, c.faults
}

func (r *rig) join(t require.TestingT, k kind, number int) *client {
	c := &client{kind: k, t: t, gpu: r.gpu}
	var err error
	c.share, err = r.gpu.NewShare(card.ShareConfig{Number: number, Class: k.class, Channels: 4, Guaranteed: 1, Tables: tables})
	require.NoError(t, err)
	runs, err := r.gpu.AllocVRAM(7*page, page)
	require.NoError(t, err)
	c.run = runs[0]
	c.space, err = c.share.NewSpace()
	require.NoError(t, err)
	c.remap(ringVA, 0, shadowpt.Mapped)
	c.remap(pushVA, 1, shadowpt.Mapped)
	for i := range uint64(4) {
		c.remap(k.data+i*page, 2+i, shadowpt.Mapped)
	}
	c.open(card.State{}, false)
	return c
}

// remap maps a page of the client's memory.
func (c *client) remap(va, at uint64, flags shadowpt.Flags) {
	done, err := c.space.Apply([]card.Change{{VA: va, Size: page, Page: page, Addr: c.run.Addr + at*page, Flags: flags}})
	require.NoError(c.t, err)
	require.Equal(c.t, 1, done)
}

func (c *client) open(s card.State, privileged bool) {
	var err error
	c.ch, err = c.share.NewChannel(card.ChannelConfig{
		Space: c.space, Limit: c.limit, Engine: card.Graphics, Ring: card.Ring{Base: ringVA, Log2: log2}, State: s, Put: s.GPGet, Progress: card.Progress{GPGet: s.GPGet},
		Prefer: 9, Privileged: privileged,
	}, c)
	require.NoError(c.t, err)
	c.put = s.GPGet
}

func (c *client) start() {
	c.ch.Enable()
	require.True(c.t, c.share.Commit())
	c.submit(incr(4, 0, c.object))
}

// stop takes the channel off the card.
func (c *client) stop() {
	c.ch.Disable()
	left, inTime := c.ch.Stop(true)
	require.True(c.t, left && inTime)
	require.False(c.t, c.ch.Running())
}

func (c *client) free() {
	c.ch.Unbind()
	require.True(c.t, c.share.Invalidate(c.space))
	c.ch.Free()
}

func (c *client) leave() {
	c.stop()
	c.free()
	c.space.Free()
	for _, r := range c.share.Memory() {
		b := make([]byte, r.Size)
		require.True(c.t, c.gpu.ReadVRAM(r.Addr, b))
		require.Equal(c.t, make([]byte, r.Size), b, "memory of a share without channels and spaces is clear")
	}
	c.share.Close(false)
	c.gpu.FreeVRAM(c.run)
}

func (c *client) submit(parts ...[]uint32) {
	var b []byte
	for _, p := range parts {
		for _, w := range p {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
	}
	at := uint64(c.put) * page >> log2
	require.LessOrEqual(c.t, len(b), page>>log2)
	c.gpu.WriteVRAM(c.run.Addr+page+at, b)
	c.gpu.WriteVRAM(c.run.Addr+uint64(c.put)*8, binary.LittleEndian.AppendUint64(nil, (pushVA+at)|uint64(len(b)/4)<<42))
	c.put = (c.put + 1) & (1<<log2 - 1)
	c.ch.Doorbell(c.put)
}

// copies copies n bytes from the first page of data to the second, lines times.
func (c *client) copies(n, lines uint32) []uint32 {
	dst, src := c.data+page, c.data
	return append(incr(4, c.copy[0], uint32(src>>32), uint32(src), uint32(dst>>32), uint32(dst), 0, 0, n, lines), incr(4, 0x300, c.copy[1])...)
}

func (c *client) read(at uint64, n int) []byte {
	b := make([]byte, n)
	require.True(c.t, c.gpu.ReadVRAM(c.run.Addr+at*page, b))
	return b
}

// word is at the begin of page i of data.
func (c *client) word(i uint64) uint32 { return binary.LittleEndian.Uint32(c.read(2+i, 4)) }

func (c *client) eventually(what func() bool) { require.Eventually(c.t, what, patience, tick) }

// work copies new data, and reports whether it arrived by the time of the release after it.
func (c *client) work(r *rand.Rand) bool {
	src := binary.LittleEndian.AppendUint64(nil, r.Uint64()|1)
	c.gpu.WriteVRAM(c.run.Addr+2*page, src)
	n := r.Uint32() | 1
	c.submit(c.copies(8, 1), c.release(c.data+2*page, n), incr(4, 0x20, 0))
	c.eventually(func() bool { return c.word(2) == n })
	return bytes.Equal(src, c.read(3, 8))
}

func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) { test(t, k) })
	}
}

// TestKindsTogether: guests of both kinds work on one card at once, and each gets its own data and events.
// Without engines the same programs end, and move nothing.
func TestKindsTogether(t *testing.T) {
	for _, off := range []bool{false, true} {
		r := newRig(t, soft.Config{DisableEngines: off}, 0)
		before := r.gpu.FreeBytes()
		var clients []*client
		for range 2 {
			for _, k := range kinds {
				clients = append(clients, r.join(t, k, len(clients)))
			}
		}
		ids := make(map[uint32]bool)
		var wg sync.WaitGroup
		for i, c := range clients {
			require.False(t, ids[c.ch.ID()], "numbers of both kinds are one's own")
			ids[c.ch.ID()] = true
			c.start()
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				for range 20 {
					if c.work(rng) == off {
						t.Error("a copy is wrong, or one without engines right")
					}
				}
			})
		}
		wg.Wait()
		for _, c := range clients {
			c.eventually(func() bool { e, _ := c.events(); return e != 0 })
			require.Empty(t, c.faults)
			u := r.gpu.Meter().Use(c.ch.ID())
			require.EqualValues(t, 21, u.Ended)
			c.leave()
		}
		require.Equal(t, before, r.gpu.FreeBytes())
		r.close(t)
	}
}

// TestKindsStopAndGoOn: for any order of enables, stops and new channels for a saved state, work is done if
// the channel may run, and none otherwise. A new channel has the classes and values of the one before.
func TestKindsStopAndGoOn(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRig(t, soft.Config{}, 0)
		defer r.close(t)
		rapid.Check(t, func(t *rapid.T) {
			c := r.join(t, k, 3)
			c.ch.Enable()
			n, done, on := uint32(0), uint32(0), false // releases, those that were done; whether the channel may run
			c.submit(incr(4, 0, k.object), c.copies(4, 1))
			for range rapid.IntRange(4, 16).Draw(t, "steps") {
				switch rapid.IntRange(0, 4).Draw(t, "step") {
				case 0:
					c.ch.Enable()
					require.True(t, c.share.Commit())
					on = true
				case 1:
					c.ch.Disable()
					on = on && r.gpu.Preempt(c.ch) && false
				case 2:
					c.stop()
					s := c.ch.State()
					require.Equal(t, s.GPGet, c.ch.Progress().GPGet)
					r.gpu.Poll()
					put := c.put
					c.free()
					c.open(s, false)
					c.put, on = put, false
					c.ch.Doorbell(put)
				default:
					n++
					c.gpu.WriteVRAM(c.run.Addr+2*page, binary.LittleEndian.AppendUint32(nil, n))
					c.submit(incr(4, 0x300, k.copy[1]), k.release(k.data+2*page, n)) // with the addresses of the first
				}
				if on {
					c.eventually(func() bool { return c.word(2) == n && c.ch.Quiet() })
					require.Equal(t, n, c.word(1))
					require.Equal(t, c.put, c.ch.Progress().GPGet)
					done = n
				} else {
					require.Equal(t, []any{false, done}, []any{c.ch.Running(), c.word(2)})
				}
			}
			_, faults := c.events()
			require.Empty(t, faults)
			c.leave()
		})
	})
}

// TestKindsFault: a fault stops its channel, is told once with address and engine, and others go on. A
// page of drivers is reached by a privileged channel of a card that knows such.
func TestKindsFault(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRig(t, soft.Config{}, 0)
		c := r.join(t, k, 1)
		var others []*client
		for _, k := range kinds {
			others = append(others, r.join(t, k, 2+len(others)))
		}
		c.start()
		c.submit(c.copies(4*page, 1), k.release(k.data+2*page, 1)) // to a page beyond its data
		c.eventually(func() bool { _, f := c.events(); return len(f) > 0 })
		require.Equal(t, card.Fault{Engine: card.Copy0, VA: k.data + 4*page, Write: true, Reason: shadowpt.PageNotPresent}, func() card.Fault { f := c.faults[0]; f.Code = 0; return f }())
		c.stop()
		r.gpu.Poll()
		require.Len(t, c.faults, 1)
		require.Zero(t, c.word(2))
		for _, o := range others {
			o.start()
			require.True(t, o.work(rand.New(rand.NewPCG(1, 1))))
			o.leave()
		}
		c.free()
		c.remap(k.data, 2, 0)
		c.remap(k.data, 2, shadowpt.Mapped|shadowpt.Supervisor)
		for _, privileged := range []bool{true, false} {
			c.open(card.State{}, privileged)
			c.start()
			c.submit(k.release(k.data, 5), k.release(k.data+2*page, 6))
			reaches := privileged && k.class == 0xc86f
			c.eventually(func() bool { _, f := c.events(); return c.word(2) == 6 || len(f) > 1 })
			require.Equal(t, reaches, c.word(2) == 6)
			c.stop()
			c.free()
			r.gpu.WriteVRAM(c.run.Addr+4*page, make([]byte, 4))
			c.faults = c.faults[:1]
		}
		r.close(t)
	})
}

// TestKindsInvalidate: an invalidate makes a changed entry valid, and waits for steps of its own share only.
func TestKindsInvalidate(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRig(t, soft.Config{}, 20*time.Millisecond)
		defer r.close(t)
		c, neighbour := r.join(t, k, 1), r.join(t, kinds["906f"], 2)
		c.start()
		c.submit(k.release(k.data, 1))
		c.eventually(func() bool { return c.word(0) == 1 })
		c.remap(k.data, 2, 0)
		c.remap(k.data, 6, shadowpt.Mapped)
		require.True(t, c.share.Invalidate(c.space))
		c.submit(k.release(k.data, 2))
		c.eventually(func() bool { return c.word(4) == 2 })
		require.EqualValues(t, 1, c.word(0))

		hold := func(id uint32, begin func()) (let func()) { // in a step
			held, free := make(chan bool), make(chan bool)
			var once sync.Once
			f := func(channel uint32) {
				if channel == id {
					once.Do(func() { close(held); <-free })
				}
			}
			r.watch.Store(&f)
			begin()
			<-held
			return sync.OnceFunc(func() {
				r.watch.Store(nil)
				close(free)
			})
		}
		let := hold(neighbour.ch.ID(), neighbour.start)
		defer let()
		require.True(t, c.share.Invalidate(c.space))
		let()
		let = hold(c.ch.ID(), func() { c.submit(k.release(k.data, 3)) })
		ended := c.share.Invalidate(c.space)
		left, inTime := c.ch.Stop(true)
		let()
		require.False(t, ended || left || inTime)
		c.eventually(func() bool { return !c.ch.Running() })
		require.True(t, c.share.Invalidate(c.space))
	})
}

// TestReset: whoever has a described channel learns that a reset of the card, or its end, ended it.
func TestReset(t *testing.T) {
	for name, end := range map[string]func(*rig) error{"reset": func(r *rig) error { return r.card.Reset() }, "close": func(r *rig) error { return r.card.Close() }} {
		r := newRig(t, soft.Config{}, 0)
		c := r.join(t, kinds["c86f"], 1)
		c.start()
		c.submit(c.copies(8, 1<<32-1))
		c.eventually(c.ch.Running)
		require.NoError(t, end(r))
		c.eventually(func() bool { _, f := c.events(); return len(f) == 1 && f[0].Kind == card.Broken })
		require.True(t, c.ch.Quiet())
		left, inTime := c.ch.Stop(true)
		require.True(t, left && inTime)
		c.ch.Unbind()
		r.gpu.Close()
		if name == "reset" {
			require.NoError(t, r.card.Close())
		}
	}
}

// TestOtherClass: a card that takes no channels by description has none of another class, and says so.
func TestOtherClass(t *testing.T) {
	r := newRig(t, soft.Config{}, 0)
	defer r.close(t)
	for class, want := range map[uint16]string{0xc76f: "class c76f", 0xc86f: "20 KiB for page tables: one address space needs 24 KiB"} {
		_, err := r.gpu.NewShare(card.ShareConfig{Class: class, Guaranteed: 1, Tables: 20 << 10})
		require.ErrorContains(t, err, want)
	}
	plain, err := driver.New(struct{ card.Registers }{r.card}, driver.Options{})
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.NewShare(card.ShareConfig{Class: 0xc86f, Guaranteed: 1, Tables: tables})
	require.ErrorContains(t, err, "class c86f")
}

// TestNumbersAreOneTable: what shares of one kind were promised, those of the other cannot take.
func TestNumbersAreOneTable(t *testing.T) {
	r := newRig(t, soft.Config{}, 0)
	defer r.close(t)
	fill := func(c *client) (n int) {
		for ; ; n++ {
			if _, err := c.share.NewChannel(card.ChannelConfig{Space: c.space}, c); err != nil {
				require.ErrorIs(t, err, card.ErrChannels)
				return n
			}
		}
	}
	a, b := r.join(t, kinds["c86f"], 1), r.join(t, kinds["906f"], 2)
	last, err := r.gpu.NewShare(card.ShareConfig{Number: 3, Class: 0xc86f, Guaranteed: 5, Tables: tables})
	require.NoError(t, err)
	require.Equal(t, gf100.Channels-2-5, fill(b))
	require.Zero(t, fill(a))
	a.share = last
	require.Equal(t, 5, fill(a))
}
