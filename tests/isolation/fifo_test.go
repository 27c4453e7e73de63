package isolation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	fifoSrc, fifoDst = 0x1000_0000, 0x2000_0000
	fifoBytes        = 4096
)

// couple is two guests on one card, each with a channel that can copy.
func couple(t *testing.T, cfg soft.Config) (s *rig.Rig, gs [2]*rig.Guest, chs [2]*guest.Channel) {
	t.Helper()
	s = rig.New(t, testserver.SharedConfig{Card: cfg})
	for i := range gs {
		gs[i] = s.Join(aggregator.GuestConfig{Name: fmt.Sprint("gpu", i)})
		for _, va := range []uint64{fifoSrc, fifoDst} {
			gs[i].Buffer(va, fifoBytes, guest.Small)
		}
		chs[i] = gs[i].Channel(1, guest.ChannelConfig{})
		copies(t, chs[i])
	}
	return s, gs, chs
}

func copies(t *testing.T, ch *guest.Channel) {
	t.Helper()
	require.NoError(t, ch.Copy(guest.CE0, fifoDst, fifoSrc, fifoBytes))
	require.NoError(t, ch.Finish())
}

// TestSavedStates: a guest unbinds a channel, its neighbour binds and unbinds more
// channels than the card has, and then the first binds its own again. The channel
// still has the classes that it bound to its subchannels.
func TestSavedStates(t *testing.T) {
	s, gs, chs := couple(t, soft.Config{})
	g, other := gs[0], gs[1]
	stats := s.GPUs[1].Guest.Stats()
	block := make([]byte, gf100.InstanceSize)
	require.NoError(t, other.Raw().VRAM(chs[1].Instance(), block))
	var blocks [2]uint64 // alternating, so that none is the same channel again
	for i := range blocks {
		b, err := other.AllocVRAM(gf100.InstanceSize)
		require.NoError(t, err)
		require.NoError(t, other.Raw().SetVRAM(b.Addr, block))
		blocks[i] = b.Addr
	}
	require.NoError(t, chs[0].Stop())
	require.NoError(t, g.Raw().SetReg(0x3000+1*8, 0))
	for i := range uint32(2 * gf100.Channels) {
		id := 2 + i%(gf100.Channels-2)
		before := stats.Channels.Unbinds.Load()
		require.NoError(t, other.Raw().Bind(int(id), 0xc0000000|uint32(blocks[i/(gf100.Channels-2)%2]>>12), 0))
		require.Eventually(t, func() bool { return stats.Channels.Binds.Load() == stats.Channels.Unbinds.Load()+2 }, wait, tick/1000)
		require.NoError(t, other.Raw().Bind(int(id), 0, 0))
		require.Eventually(t, func() bool { return stats.Channels.Unbinds.Load() > before }, wait, tick/1000)
	}
	require.NoError(t, chs[0].Start())
	copies(t, chs[0])
	require.Zero(t, s.GPUs[0].Guest.Stats().Channels.PBDMAErrors.Load(), "its subchannels have lost their classes")
	copies(t, chs[1])
}

// TestScheduling: a guest's PFIFO stops only its own channels, and work submitted while it
// is stopped is not lost.
func TestScheduling(t *testing.T) {
	_, gs, chs := couple(t, soft.Config{})
	for _, r := range []struct{ reg, off, on uint32 }{{0x2630, 1, 0}, {0x2200, 0, 1}} {
		require.NoError(t, gs[0].Raw().SetReg(r.reg, r.off))
		require.NoError(t, gs[0].Raw().Invalidate(0, 3)) // done after it
		require.NoError(t, chs[0].Copy(guest.CE0, fifoDst, fifoSrc, fifoBytes))
		f, err := chs[0].Fence()
		require.NoError(t, err)
		for range 20 {
			copies(t, chs[1])
		}
		done, err := f.Done()
		require.NoError(t, err)
		require.False(t, done, "%06x", r.reg)
		require.NoError(t, gs[0].Raw().SetReg(r.reg, r.on))
		require.NoError(t, gs[0].Wait(f))
	}
}

// TestFaultTrigger: a guest triggers the fault of an engine that its own channel and
// its neighbour's both use. Only its own channel faults, and it sees no other.
func TestFaultTrigger(t *testing.T) {
	s, gs, chs := couple(t, soft.Config{})
	raw := gs[0].Raw()
	const status = 0x2640 + 4*gf100.EngineCE0
	trigger := uint32(0x2a30 + 4*gf100.EngineCE0)
	require.NoError(t, raw.SetReg(trigger, 0x100)) // none of its channels is on the engine yet
	var stopped *guest.ChannelError
	const large, size = 0x4000_0000, 4 << 20
	other := gs[1].Channel(3, guest.ChannelConfig{})
	gs[1].Buffer(large, 2*size, guest.Big)
	require.Eventually(t, func() bool {
		for range 8 {
			require.NoError(t, other.Copy(guest.CE0, large, large+size, size))
		}
		return gs[1].Raw().Reg(status) == gf100.EngineBusy|3
	}, wait, tick/1000)
	require.Zero(t, raw.Reg(status), "a neighbour's channel")
	require.Eventually(t, func() bool {
		for range 50 {
			require.NoError(t, chs[0].Copy(guest.CE0, fifoDst, fifoSrc, fifoBytes))
		}
		seen := raw.Reg(status)
		require.Contains(t, []uint32{0, gf100.EngineBusy | 1}, seen)
		return seen != 0
	}, wait, tick/50)
	require.NoError(t, chs[0].Err())
	require.NoError(t, raw.SetReg(trigger, 0x100))
	require.Equal(t, uint32(0x100), raw.Reg(trigger))
	require.ErrorAs(t, chs[0].Finish(), &stopped)
	require.Equal(t, 0x15, stopped.Fault.Unit)
	require.Equal(t, chs[0].Instance(), stopped.Fault.Inst)
	copies(t, chs[1])
	require.Zero(t, s.GPUs[1].Guest.Stats().Channels.MMUFaults.Load())
	require.Equal(t, uint64(1), s.GPUs[0].Guest.Stats().Channels.MMUFaults.Load())
}

// TestInvalidatesKeepOthersTranslations: an invalidate of a guest drops only
// its own translations in the card. With FlushAll it drops its neighbour's too.
func TestInvalidatesKeepOthersTranslations(t *testing.T) {
	for _, all := range []bool{false, true} {
		s, _, chs := couple(t, soft.Config{FlushAll: all})
		s.GPUs[0].Guest.SetShadow(shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: shadowpt.ScanFull})
		copies(t, chs[1])
		if !all { // an invalidate without translations flushes nothing
			require.NoError(t, chs[0].Close())
		}
		flushes := s.Card.Stats().TLBFlushes.Load()
		const n = 20
		for i := range uint64(n) {
			require.NoError(t, chs[0].Space.MapAddr(fifoDst+16<<20, shadowpt.VRAM, i*shadowpt.SmallPage, shadowpt.SmallPage, guest.Small))
			copies(t, chs[1])
		}
		forgotten := s.Card.Stats().TLBFlushes.Load() - flushes
		if all {
			require.GreaterOrEqual(t, forgotten, uint64(n))
		} else {
			require.Zero(t, forgotten)
		}
	}
}

// TestNewChannelInOldBlock: a channel ends in the middle of its work, at the beginning
// of its ring. A new channel with the same instance block, ring and number does not
// continue that work.
func TestNewChannelInOldBlock(t *testing.T) {
	_, gs, chs := couple(t, soft.Config{})
	g, space := gs[0], chs[0].Space
	require.NoError(t, chs[0].Close())
	ch, err := g.NewChannelWith(1, space, guest.ChannelConfig{RingLog2: 3})
	require.NoError(t, err)
	inst, ring := ch.Instance(), ch.RingVA()
	for range 7 { // the eighth entry ends where the ring begins
		require.NoError(t, ch.Finish())
	}
	require.NoError(t, ch.Copy(guest.CE0, fifoDst, 0x7000_0000, fifoBytes))
	var stopped *guest.ChannelError
	require.ErrorAs(t, ch.Finish(), &stopped)
	require.NoError(t, ch.Close())
	ch, err = g.NewChannelWith(1, space, guest.ChannelConfig{RingLog2: 3})
	require.NoError(t, err)
	require.Equal(t, inst, ch.Instance())
	require.Equal(t, ring, ch.RingVA())
	copies(t, ch)
}
