package driver_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// kind is a class of channels, and what its programs look like.
type kind struct {
	class   uint16
	limit   uint64 // last address of its spaces
	copy    push.Engine
	data    uint64 // where the clients have data, one page more than four
	release func(b *push.Buffer, va uint64, payload uint32) *push.Buffer
}

var kinds = map[string]kind{
	"906f": {gf100.ChannelClass, shadowpt.Fermi.VASize() - 1, push.CE0, 0x40_0000, (*push.Buffer).Release},
	"c86f": {0xc86f, shadowpt.Hopper.VASize() - 1, push.HopperCopy, 0x123_4567_0000_0000, (*push.Buffer).HopperRelease},
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
	low, err := r.gpu.NewShare(card.ShareConfig{Class: gf100.ChannelClass, Tables: tables})
	require.NoError(t, err)
	_, err = low.AllocVRAM(12<<30, page)
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

	again atomic.Bool // each event causes the next
}

func (c *client) Completed(e card.EngineSet) {
	if c.again.Load() {
		c.ch.(card.ChannelEvents).Completed(e)
	}
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
	runs, err := c.share.AllocVRAM(7*page, page)
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
	c.submit(new(push.Buffer).Bind(c.copy))
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
}

func (c *client) submit(commands *push.Buffer) {
	var b []byte
	for _, w := range commands.Words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	at := uint64(c.put) * page >> log2
	require.LessOrEqual(c.t, len(b), page>>log2)
	c.gpu.WriteVRAM(c.run.Addr+page+at, b)
	c.gpu.WriteVRAM(c.run.Addr+uint64(c.put)*8, binary.LittleEndian.AppendUint64(nil, (pushVA+at)|uint64(len(b)/4)<<42))
	c.put = (c.put + 1) & (1<<log2 - 1)
	c.ch.Doorbell(c.put)
}

// copies copies n bytes from the first page of data to the second, lines times.
func (c *client) copies(n, lines uint32) *push.Buffer {
	return new(push.Buffer).CopyLines(c.copy, push.Surface{VA: c.data + page}, push.Surface{VA: c.data}, n, lines)
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
	c.submit(c.release(c.copies(8, 1), c.data+2*page, n).NonStall(c.copy))
	c.eventually(func() bool { return c.word(2) == n })
	return bytes.Equal(src, c.read(3, 8))
}
