package rm

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestCopies: channels of both engines copy from RAM to the card's memory and to that of the host, and back, many times
// around their rings.
func TestCopies(t *testing.T) {
	r := newRig(t, Config{})
	g := r.join(3)
	const n = 16 << 10
	from, to := g.mapRAM(0x1_0000_0000, n), g.mapRAM(0x2_0000_0000, n)
	inCard, inHost := uint64(8<<20), uint64(vramSize-n)
	g.apply(ramPages(farVA, 0x1_0000_0000, n), ramPages(farVA+n, 0x2_0000_0000, n),
		card.Change{VA: dataVA, Size: n, Page: page, Addr: g.base() + inCard, Flags: shadowpt.Mapped},
		card.Change{VA: dataVA + n, Size: n, Page: page, Addr: g.base() + inHost, Flags: shadowpt.Mapped})
	clients := []*client{g.open(0, card.Graphics), g.open(1, card.Copy0+1)}
	const rounds = batches + 100 // of two batches each, on two channels
	for i := range rounds {
		c := clients[i%2]
		if i%100 == 0 {
			_, _ = rand.Read(from)
			clear(to)
		}
		c.add(copies(dataVA, farVA, n/2))
		c.add(copies(dataVA+n/2, farVA+n/2, n/2))
		c.submit(copies(dataVA+n, dataVA, n))
		c.submit(copies(farVA+n, dataVA+n, n))
		c.wait()
		if i%100 == 0 {
			require.True(t, bytes.Equal(from, to), "round %d", i)
			got := make([]byte, n)
			for _, at := range []uint64{inCard, inHost} {
				require.True(t, g.gpu.ReadVRAM(g.base()+at, got))
				require.True(t, bytes.Equal(from, got))
				require.True(t, g.gpu.SameVRAM(g.base()+at, got))
				got[n-1]++
				require.False(t, g.gpu.SameVRAM(g.base()+at, got))
			}
		}
	}
	for i, c := range clients {
		eventually(t, c.Quiet)
		require.Equal(t, c.put, c.Progress().GPGet)
		u := r.gpu.Meter().Use(c.ID())
		require.EqualValues(t, rounds/2*4, u.Ended)
		require.NotZero(t, u.Busy[[]card.Engine{card.Graphics, card.Copy0 + 1}[i]])
		require.True(t, u.Idle)
		require.Empty(t, c.faults())
		eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.done != 0 })
	}
	require.NoError(t, g.gpu.ScrubVRAM(g.base(), vramSize))
	require.True(t, g.gpu.SameVRAM(g.base()+inCard, make([]byte, n)) && g.gpu.SameVRAM(g.base()+inHost, make([]byte, n)))
}

// TestFaults: what stops a channel is told once and ends that channel alone. A process that dies ends its guest's.
func TestFaults(t *testing.T) {
	r := newRig(t, Config{})
	g, o := r.join(0), r.join(1)
	good, other := g.open(1, card.Graphics), o.open(0, card.Graphics)
	works := func(list ...*client) {
		t.Helper()
		for _, c := range list {
			c.submit(new(push.Buffer))
			c.wait()
			require.Empty(t, c.faults())
		}
	}
	for i, x := range []struct {
		do   func(*client)
		want card.Fault
	}{
		{func(c *client) { c.submit(copies(0x777_0000, c.va, 64)) },
			card.Fault{Kind: card.Translation, Engine: card.Graphics, VA: 0x777_0000, Reason: shadowpt.PageNotPresent, Code: 31}},
		{func(c *client) { c.submit(&push.Buffer{Words: []uint32{0xffff_ffff}}) },
			card.Fault{Kind: card.BadHeader, Engine: card.Graphics, Code: 32, Text: "an invalid or corrupted push buffer (Xid 32)"}},
		{func(c *client) { c.Doorbell(1 << ringLog2) }, card.Fault{Kind: card.BadPointer, Engine: card.NoEngine, Data: 1 << ringLog2}},
		{func(c *client) { c.Doorbell(1) },
			card.Fault{Kind: card.Translation, Engine: card.NoEngine, Reason: shadowpt.PageNotPresent}},
	} {
		bad := g.open(2+uint64(i), card.Graphics)
		if x.want.Engine == card.NoEngine && x.want.Data == 0 {
			x.want.VA = bad.va
			g.apply(card.Change{VA: bad.va, Size: page, Page: page})
		}
		x.do(bad)
		eventually(t, func() bool { return len(bad.faults()) > 0 })
		bad.Doorbell(3)
		works(good, other)
		require.Equal(t, []card.Fault{x.want}, bad.faults())
		require.False(t, bad.Running())
	}
	require.Equal(t, card.ProgramError, faultOf(card.Graphics, 109, nvrm.Fault{}).Kind)
	require.Equal(t, card.Broken, faultOf(card.Graphics, 79, nvrm.Fault{}).Kind)

	good.submit(new(push.Buffer).HopperAcquire(good.va+fenceAt+16, 1))
	require.NoError(t, g.w.Close())
	eventually(t, func() bool { return len(good.faults()) > 0 })
	require.Equal(t, card.Broken, good.faults()[0].Kind)
	require.False(t, good.Running())
	_, err := g.NewSpace()
	require.Error(t, err)
	_, err = g.NewChannel(card.ChannelConfig{Space: g.space}, good)
	require.ErrorIs(t, err, errEnded)
	list := []card.Change{{VA: good.va, Size: page, Page: page}, ramPages(dataVA, ramAt, page), {VA: dataVA, Size: page, Page: page}}
	done, err := g.space.Apply(list)
	require.ErrorIs(t, err, errEnded)
	require.Equal(t, 1, done, "nothing refuses to unmap")
	require.False(t, g.gpu.ReadVRAM(g.base(), make([]byte, 4)), "the card's memory is the driver's again")
	require.True(t, g.gpu.ReadVRAM(g.base()+vramSize-4, make([]byte, 4)))
	works(other)
}

// TestStops: a channel that may not run leaves the card with its work, and goes on with it.
func TestStops(t *testing.T) {
	r := newRig(t, Config{})
	g := r.join(0)
	c := g.open(0, card.Graphics)
	wait := uint64(fenceAt + 16)
	for i, x := range []struct{ off, on func() }{
		{c.Disable, c.Enable},
		{func() { left, inTime := c.Stop(true); require.True(t, left && inTime) }, func() { require.True(t, g.Commit()) }},
	} {
		open := uint32(i + 1)
		c.submit(new(push.Buffer).HopperAcquire(c.va+wait, open))
		eventually(t, c.Running)
		require.False(t, c.Quiet())
		require.True(t, r.gpu.Preempt(c.Channel), "it may run, so it stays")
		require.True(t, c.Running())
		x.off()
		require.True(t, r.gpu.Preempt(c.Channel))
		require.False(t, c.Running())
		seq := c.fence()
		store(c.ring, wait, open)
		c.submit(new(push.Buffer))
		get := c.State().GPGet
		require.False(t, c.Quiet())
		require.Equal(t, []uint32{seq, get}, []uint32{c.fence(), c.State().GPGet})
		x.on()
		c.wait()
		eventually(t, c.Quiet)
		require.Equal(t, c.put, c.Progress().GPGet)
	}
	require.NoError(t, r.gpu.SetWeight(g.share, 3))
	require.Error(t, r.gpu.SetWeight(g.share, 0))
	eventually(t, func() bool { return g.w.Stats().Slice == 3000 })
}

// TestRing: more batches than the server's ring has wait for room, and a guest's own base of segments stays.
func TestRing(t *testing.T) {
	r := newRig(t, Config{Hang: time.Hour}) // the share's goroutine looks in time by itself only while entries wait
	g := r.join(0)
	c := g.openRing(0, card.Copy0+1, bigLog2)
	g.apply(ramPages(farVA, ramAt, 1<<16))
	c.entry(uint32(farVA>>40)<<8, setBase)
	g.w.Freeze(true)
	for i := range batches + 100 {
		c.add(new(push.Buffer))
		last := c.ring[(c.put-1)*8:] // its push is read by the far address, too
		binary.LittleEndian.PutUint64(last, uint64(farVA&(1<<40-1))+binary.LittleEndian.Uint64(last)-ringVA)
		c.Doorbell(c.put)
		if i == 0 {
			eventually(t, g.armed.Load)
		}
	}
	require.Zero(t, c.Progress().GPGet)
	require.False(t, c.Quiet())
	g.w.Freeze(false)
	c.wait()
	eventually(t, c.Quiet)
	require.Equal(t, c.put, c.Progress().GPGet)
	require.Empty(t, c.faults())
}

// TestHung: work that does not end is reset when it keeps another guest's from the engine, and not while others go on.
func TestHung(t *testing.T) {
	r := newRig(t, Config{Hang: 100 * time.Millisecond})
	g, o := r.join(0), r.join(1)
	hung, free, other := g.open(0, card.Graphics), o.open(0, card.Graphics), o.open(1, card.Copy0+1)
	hung.submit(new(push.Buffer).HopperAcquire(hung.va+fenceAt+16, 1))
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(tick) {
		free.submit(new(push.Buffer))
		free.wait()
	}
	require.Empty(t, hung.faults(), "it waits, and others run")
	o.w.Freeze(true)
	free.submit(new(push.Buffer))
	other.submit(new(push.Buffer))
	eventually(t, func() bool { return len(hung.faults()) > 0 })
	f := hung.faults()[0]
	require.Equal(t, card.ProgramError, f.Kind)
	require.Contains(t, f.Text, "did not end")
	o.w.Freeze(false)
	free.wait()
	other.wait()
	require.Len(t, hung.faults(), 1)
	require.Empty(t, append(free.faults(), other.faults()...))
}

// TestAccount: the time of an engine is divided by time slices while several have work.
func TestAccount(t *testing.T) {
	var e engine
	channels := make([]*channel, 2)
	for i, slice := range []uint64{1000, 3000} {
		ch := &channel{share: new(share)}
		ch.share.slice.Store(slice)
		ch.ring.mem = make([]byte, ownBytes)
		ch.onCard.Store(true)
		channels[i] = ch
		e.join(ch)
	}
	mark := func(ch *channel, begin, end uint64) {
		seq := ch.head.Load()
		for which, at := range []uint64{begin, end} {
			if off := stampAt(seq, uint64(which)); at > 0 {
				binary.LittleEndian.PutUint32(ch.ring.mem[off:], uint32(seq+1))
				binary.LittleEndian.PutUint64(ch.ring.mem[off+8:], at)
			}
		}
		ch.ring.batches[seq%batches].entries = 5
		ch.head.Store(seq + 1)
	}
	mark(channels[0], 1000, 2000)
	mark(channels[0], 1500, 5000) // it began before the first ended
	mark(channels[1], 3000, 6000)
	mark(channels[1], 9000, 0)
	e.advance()
	require.Equal(t, []time.Duration{2000 + 500, 1500 + 1000}, []time.Duration{channels[0].used, channels[1].used})
	require.Equal(t, []uint64{10, 5}, []uint64{channels[0].entries, channels[1].entries})
}

// TestNumbers: channels that are guaranteed to a guest are nobody else's.
func TestNumbers(t *testing.T) {
	g := new(GPU)
	g.shares[0], g.shares[1] = &share{cfg: card.ShareConfig{Guaranteed: 2}}, new(share)
	for range Channels - 2 {
		require.True(t, g.enter(&channel{share: g.shares[1]}, 7))
	}
	require.False(t, g.enter(&channel{share: g.shares[1]}, 7))
	require.True(t, g.enter(&channel{share: g.shares[0]}, 7))
	require.True(t, g.enter(&channel{share: g.shares[0]}, 7))
	require.False(t, g.enter(&channel{share: g.shares[0]}, 7))
}

// TestMoves: nothing is lost of what channels copy to pages that move meanwhile.
func TestMoves(t *testing.T) {
	r := newRig(t, Config{})
	g := r.join(0)
	c := g.open(0, card.Graphics)
	const n = 8 * page
	at := g.base() + vramSize - n
	window, _, err := memfd("window", n)
	require.NoError(t, err)
	from, to := g.mapRAM(0x1_0000_0000, n), g.mapRAM(0x2_0000_0000, n)
	g.apply(ramPages(farVA, 0x1_0000_0000, n), ramPages(farVA+n, 0x2_0000_0000, n), card.Change{VA: dataVA, Size: n, Page: page, Addr: at, Flags: shadowpt.Mapped})
	stop := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() {
		for in := false; ; in = !in {
			select {
			case <-stop:
				if !in {
					return
				}
			default:
			}
			m := card.Relocation{Addr: at, Size: n, To: window}
			if in {
				m.To = nil
			}
			r.gpu.Relocator().QuiesceChannels([]uint32{c.ID()}, func() {
				done, err := r.gpu.Relocator().Relocate(m)
				assert.NoError(t, err)
				assert.EqualValues(t, n, done)
			})
			time.Sleep(tick)
		}
	})
	for range 100 {
		_, _ = rand.Read(from)
		c.add(copies(dataVA, farVA, n))
		c.submit(copies(farVA+n, dataVA, n))
		c.wait()
		require.True(t, bytes.Equal(from, to))
	}
	close(stop)
	moving.Wait()
	require.Empty(t, c.faults())
}
