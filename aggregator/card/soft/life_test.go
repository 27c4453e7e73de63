package soft_test

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

func TestConfigIsChecked(t *testing.T) {
	for _, vram := range []uint64{0, 63 << 20, 65 << 20, soft.MaxVRAM + 64<<20, ^uint64(0)} {
		_, err := soft.New(soft.Config{VRAM: vram})
		require.ErrorContains(t, err, "VRAM")
	}
	_, err := soft.New(soft.Config{VRAM: 64 << 20, TPCs: []int{99}})
	require.Error(t, err)
}

// Accesses after Close find nothing and break nothing.
func TestLateAccesses(t *testing.T) {
	r := newBareRig(t, soft.Config{})
	r.card.AttachHost(r.host)
	r.start()
	c := r.newChannel(1, r.bar1())
	r.runlist(1)
	c.endless()
	r.running()
	require.NoError(t, r.card.Close())
	require.Error(t, r.card.Close(), "twice")
	require.Equal(t, ^uint32(0), r.read32(soft.BAR0, 0x700000))
	r.wr(0x2200, 1)
	c.doorbell()
	require.False(t, r.card.ReadVRAM(0, make([]byte, 4)))
}

// A host may detach in the middle of a copy. Then its memory is not accessed, and the next
// host finds all work.
func TestDetachInMidCopy(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.endless()
	for range 20 {
		r.running()
		r.card.DetachHost()
		clear(r.host.ram[:1<<20])
		before := r.bytes()
		rests := func() bool { return r.rd(0x3004+c.id*8)&(1<<28) == 0 && r.card.Queued() == 0 } // no access wakes it
		r.eventually("it has left", rests)
		r.steady("no step", func() bool { return rests() && r.bytes() == before && r.host.load(0x1000) == 0 })
		r.card.AttachHost(r.host)
		r.steady("channels rest until the new host uses a BAR", func() bool { return r.bytes() == before })
		require.Zero(t, r.rd(0x259c), "nothing faulted")
	}
	r.running()
}

// In the middle of a copy, memory is no longer the card's when UnmapDMA has returned, and all that
// it wrote was reported by then. It writes no memory that is read-only.
func TestUnmapDMAInMidCopy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*rig)
		writes bool
	}{
		{"control", func(*rig) {}, true},
		{"unmapped", func(r *rig) { r.card.UnmapDMA(0, 1) }, false},
		{"read-only", func(r *rig) {
			r.card.UnmapDMA(0, ramSize)
			require.NoError(t, r.card.MapDMA(0, card.Mapping{Mem: r.host.ram}))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, c := newChannelRig(t, soft.Config{})
			var reported atomic.Uint64
			r.host.wrote = func(_, n uint64) { reported.Add(n) }
			r.vramWrite(c.data, bytes.Repeat([]byte{0xff}, 1<<20))
			c.endless()
			r.running()
			tc.change(r)
			if !tc.writes {
				require.Equal(t, r.bytes(), reported.Load())
			}
			clear(r.host.ram[:1<<20])
			wrote := func() bool { return r.host.load(0x8000) != 0 }
			if tc.writes {
				r.eventually("it writes", wrote)
				r.running()
				return
			}
			r.eventually("fault", func() bool { return r.rd(0x259c)&1 != 0 })
			require.True(t, bytes.Equal(r.host.ram[:1<<20], make([]byte, 1<<20)))
		})
	}
}

// TestMapDMAWaitsForNoStep: memory is mapped while a channel's step is under way.
func TestMapDMAWaitsForNoStep(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	step, end := make(chan struct{}), make(chan struct{})
	var first sync.Once
	r.host.wrote = func(_, _ uint64) { first.Do(func() { close(step); <-end }) }
	c.endless()
	<-step
	defer close(end)
	mapped := make(chan error, 1)
	go func() { mapped <- r.card.MapDMA(1<<38, card.Mapping{Mem: make([]byte, 4096)}) }()
	select {
	case err := <-mapped:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the step")
	}
}

// A reset of PFIFO unbinds all channels.
func TestPFIFOReset(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.endless()
	r.running()
	r.wr(0x200, ^uint32(1<<8))
	r.wr(0x200, ^uint32(0))
	r.eventually("left", func() bool { return r.rd(0x2640) == 0 && r.rd(0x227c)&(1<<20) == 0 })
	r.stopped()
	require.Zero(t, r.rd(0x2200)|r.rd(0x2140)|r.rd(0x3000+8)|r.rd(0x3004+8)|r.rd(0x2100))
	r.start()
	c.enable()
	r.runlist(1)
	r.stopped()
}

// Memory beyond 4 GiB is reached by all its bits, and takes none of the server's until it is written.
func TestLargeVRAMIsSparse(t *testing.T) {
	const top, va = 6<<30 - 1<<20, 0x20000000
	r, c := newChannelRig(t, soft.Config{VRAM: 6 << 30})
	c.space.mapVRAM(va, top, 1<<20)
	r.vramWrite(top, []byte{1, 2, 3, 4})
	c.submit(cat(incr(2, 0, classM2MF), copyM2MF(vaRAM, va, 4), copyM2MF(va+1<<20-4, vaRAM, 4), release(0, 1))...)
	c.waitSemaphore(0, 1)
	require.Equal(t, uint32(0x04030201), r.host.load(0))
	require.Equal(t, []byte{1, 2, 3, 4}, r.vramRead(6<<30-4, 4))
	written := 0
	r.card.LookVRAM(0, 6<<30, func(_ uint64, p []byte) { written += len(p) })
	require.Less(t, written, 64<<20)
	require.NoError(t, r.card.Reset())
}

// TestHostMemoryCutShort: a host truncates its memory file under the card's mapping, as a broken
// QEMU might.
func TestHostMemoryCutShort(t *testing.T) {
	f, mem := memoryFile(t, 1<<20)
	r, cs := newChannels(t, 3)
	r.card.UnmapDMA(0, 1)
	require.NoError(t, r.card.MapDMA(0, card.Mapping{Mem: mem, Write: true}))
	cs[0].alive()
	require.NoError(t, f.Truncate(0))

	cs[0].submit(release32(vaRAM, 1)...)
	r.eventually("fault of the host", func() bool { return r.rd(0x259c) == 1<<slotHost })
	cs[1].submit(cat(incr(2, 0, classM2MF), copyM2MF(vaRAM, vaData, 64))...)
	r.eventually("fault of the engine", func() bool { return r.rd(0x259c)&1 != 0 })
	cs[2].alive()

	r.wr(0x1700, 3<<24)
	require.Equal(t, ^uint32(0), r.rd(0x700000), "PRAMIN")
	s := r.newSpace()
	s.mapRAM(0, 0, 0x1000)
	r.wr(0x1714, 1<<31|uint32(r.instance(s, 0xfffff)>>12))
	require.Equal(t, ^uint32(0), r.read32(soft.BAR3, 0))
	r.write32(soft.BAR3, 0, 1)
	r.wr(0x2270, 3<<28)
	r.wr(0x2274, 1)
	r.card.DetachHost()
}

// Memory whose pages the host's side refuses is no memory.
func TestAbsentHostMemory(t *testing.T) {
	r, cs := newChannels(t, 2)
	r.card.UnmapDMA(0, 1)
	absent := func(uint64, uint64) bool { return false }
	require.NoError(t, r.card.MapDMA(0, card.Mapping{Mem: r.host.ram, Write: true, Populate: absent}))
	cs[0].submit(release32(vaRAM, 1)...)
	r.eventually("fault of the host", func() bool { return r.rd(0x259c) == 1<<slotHost })
	cs[1].alive()
}

// A driver waits for the end of its own invalidates. Those of channels must not delay it
// for ever.
func TestInvalidateEndsWhateverChannelsDo(t *testing.T) {
	r := newRig(t, soft.Config{})
	done := func() bool { return r.rd(0x100c80)&(1<<15) != 0 }
	r.wr(0x100cbc, 1<<31|3)
	r.card.DuringStep(func() {
		require.True(t, done(), "the step began after it")
		r.wr(0x100cbc, 1<<31|3)
		require.False(t, done(), "the step began before it")
	})
	r.card.DuringStep(func() { require.True(t, done(), "another step") })
}

func TestAttachReportsLine(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.submit(incr(0, 0x20, 0)...)
	r.eventually("line", r.host.level)
	r.card.DetachHost()
	other := newFakeHost(t)
	r.card.AttachHost(other)
	require.True(t, other.level())
	r.card.DetachHost()
}

func TestResetInMidCopy(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.endless()
	r.running()
	require.NoError(t, r.card.Reset())
	r.stopped()
	require.Zero(t, r.rd(0x3004+8)|r.rd(0x2140)|r.vram32(c.inst), "registers and VRAM")
	require.False(t, r.host.level())
	r.next = 1 << 20
	r.start()
	c = r.newChannel(1, r.bar1())
	r.runlist(1)
	c.alive()
}
