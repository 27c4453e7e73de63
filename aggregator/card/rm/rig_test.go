package rm

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/fakerm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/shadowpt"
)

const (
	patience = 20 * time.Second
	tick     = time.Millisecond
	vramSize = 96 << 20
)

// rig is a card of fakes.
type rig struct {
	t       tester
	gpu     *GPU
	workers map[int]fake
}

// fake is the worker of a share, with a driver of its own.
type fake struct {
	*worker.Worker
	*fakerm.Driver
}

type tester interface {
	require.TestingT
	Helper()
	Fatalf(string, ...any)
	Logf(string, ...any)
	Failed() bool
	Cleanup(func())
}

func newRig(t tester, cfg Config) *rig {
	r := &rig{t: t, workers: make(map[int]fake)}
	cfg.Log = t.Logf
	var err error
	r.gpu, err = Open(cfg, func(share int, ev worker.Events) (*worker.Worker, error) {
		d := &fakerm.Driver{VRAM: 8 << 30}
		w, err := worker.InProcess(d, worker.Config{Log: t.Logf}, ev)
		r.workers[share] = fake{w, d}
		return w, err
	})
	require.NoError(t, err)
	t.Cleanup(r.gpu.Close)
	return r
}

// guest is a share with a space, and RAM at ramAt.
type guest struct {
	*share
	r     *rig
	w     fake
	space *space
	ram   []byte
	chans []*client
}

const ramAt = 0x8000_0000

func (r *rig) join(n int) *guest {
	s, err := r.gpu.NewShare(card.ShareConfig{Number: n, Class: 0xc86f, Channels: 8, Guaranteed: 1, Tables: 1 << 20})
	require.NoError(r.t, err)
	g := &guest{share: s.(*share), r: r, w: r.workers[n]}
	runs, err := s.AllocVRAM(vramSize, 1<<21)
	require.NoError(r.t, err)
	require.Equal(r.t, []card.Run{{Addr: g.base(), Size: vramSize}}, runs)
	sp, err := s.NewSpace()
	require.NoError(r.t, err)
	g.space = sp.(*space)
	g.ram = g.mapRAM(ramAt, 1<<20)
	r.t.Cleanup(func() {
		if !r.t.Failed() {
			g.leave()
		}
	})
	return g
}

func (g *guest) mapRAM(at, n uint64) []byte {
	f, mem, err := memfd("ram", n)
	require.NoError(g.r.t, err)
	require.NoError(g.r.t, g.gpu.MapDMA(at, card.Mapping{Mem: mem, Write: true, Owner: uint8(g.cfg.Number), File: f}))
	return mem
}

func (g *guest) leave() {
	for _, c := range g.chans {
		c.close()
	}
	dead := g.dead.Load()
	g.space.Free()
	require.Equal(g.r.t, dead, g.dead.Load())
	g.gpu.UnmapDMA(0, 1<<48)
	if !g.dead.Load() {
		l := g.w.Stats()
		require.Equal(g.r.t, []int{2, 0, 0}, []int{l.Memories, l.Spaces, l.Channels}, "VRAM is left")
	}
	g.Close(false)
}

func (g *guest) apply(list ...card.Change) {
	g.r.t.Helper()
	done, err := g.space.Apply(list)
	require.NoError(g.r.t, err)
	require.Equal(g.r.t, len(list), done)
}

func ramPages(va, bus, n uint64) card.Change {
	return card.Change{VA: va, Size: n, Page: page, Target: shadowpt.SystemCoherent, Addr: bus, Flags: shadowpt.Mapped}
}

// Addresses of the channels' memory: a ring, pushes, and a fence for each, and data.
const (
	ringVA = 0x11000
	dataVA = 0x40_0000
	farVA  = 0x123_45_4000_0000 // beyond the 40 bits of an entry
)

// client drives a channel as a guest does.
type client struct {
	card.Channel
	g     *guest
	ch    *channel
	ring  []byte
	va    uint64
	log2  uint32
	put   uint32
	at    uint32
	seq   uint32
	mu    sync.Mutex
	done  card.EngineSet
	fault []card.Fault
}

// Where a client has its parts.
const (
	ringLog2 = 6
	bigLog2  = 11
	pushAt   = 0x4000
	pushSize = 0x8000
	fenceAt  = 0xf000
)

func (c *client) Completed(e card.EngineSet) { c.mu.Lock(); defer c.mu.Unlock(); c.done |= e }
func (c *client) Fault(f card.Fault)         { c.mu.Lock(); defer c.mu.Unlock(); c.fault = append(c.fault, f) }

// open opens a channel whose ring and pushes take 64 KiB of RAM at n * 64 KiB.
func (g *guest) open(n uint64, e card.Engine) *client { return g.openRing(n, e, ringLog2) }

func (g *guest) openRing(n uint64, e card.Engine, log2 uint32) *client {
	c := &client{g: g, va: ringVA + n<<16, ring: g.ram[n<<16:][:1<<16], log2: log2}
	g.apply(ramPages(c.va, ramAt+n<<16, 1<<16))
	ch, err := g.NewChannel(card.ChannelConfig{Space: g.space, Engine: e, Ring: card.Ring{Base: c.va, Log2: log2}}, c)
	require.NoError(g.r.t, err)
	c.Channel, c.ch = ch, ch.(*channel)
	ch.Enable()
	require.True(g.r.t, g.Commit())
	g.chans = append(g.chans, c)
	return c
}

func (c *client) close() {
	c.Disable()
	left, inTime := c.Stop(true)
	require.True(c.g.r.t, left && inTime)
	c.Unbind()
	require.True(c.g.r.t, c.g.Invalidate(c.g.space))
	c.Free()
}

// put puts an entry for the commands, and a release of the next fence behind them.
func (c *client) add(b *push.Buffer) {
	c.seq++
	words := b.HopperRelease(c.va+fenceAt, c.seq).Words
	if c.at+uint32(len(words)) > pushSize/4 {
		c.at = 0
	}
	at := pushAt + c.at*4
	for i, w := range words {
		binary.LittleEndian.PutUint32(c.ring[at+uint32(i)*4:], w)
	}
	c.entry(uint32(c.va)+at, uint32(c.va>>32)|uint32(len(words))<<10)
	c.at += uint32(len(words))
}

func (c *client) entry(lo, hi uint32) {
	binary.LittleEndian.PutUint64(c.ring[c.put*8:], uint64(hi)<<32|uint64(lo))
	c.put = (c.put + 1) % (1 << c.log2)
}

func (c *client) fence() uint32 { return load(c.ring, fenceAt) }

func (c *client) submit(b *push.Buffer) {
	c.add(b)
	c.Doorbell(c.put)
}

func (c *client) wait() {
	c.g.r.t.Helper()
	eventually(c.g.r.t, func() bool { return c.fence() == c.seq })
}

func (c *client) faults() []card.Fault { c.mu.Lock(); defer c.mu.Unlock(); return c.fault }

func eventually(t tester, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(tick / 4) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen")
		}
	}
}

func copies(dst, src, n uint64) *push.Buffer {
	return new(push.Buffer).Bind(push.HopperCopy).Copy(push.HopperCopy, dst, src, n).NonStall(push.HopperCopy)
}
