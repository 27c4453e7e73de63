package driver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

func TestBringUp(t *testing.T) {
	f := fakecard.New(4 << 20)
	d := newDriver(t, f, Options{})
	for reg, want := range map[uint32]uint32{
		regPMCIntrEn: 1, regPMCIntrMask0: intrOurs, regFIFOEnable: 1, regUSERDBase: 1 << 28, regGraphIntrEn: ^uint32(0),
	} {
		require.Equal(t, want, f.Get(reg), "%#x", reg)
	}
	// BAR1 shows the poll area, and behind it nothing.
	block := f.Bytes[uint64(f.Get(regBAR1Block)&gf100.BlockAddr)<<12:][:gf100.InstanceSize]
	_, _, limit := gf100.InstanceSpace(block)
	require.Equal(t, uint64(gf100.Channels*gf100.USERDSize-1), limit)
	require.EqualValues(t, gf100.PollSize, d.PollArea().Size)
	_, err := New(fakecard.New(1<<16), Options{})
	require.ErrorContains(t, err, "512 KiB of memory")
}

// TestAllocatedMemoryIsClear: whoever gets memory of the card finds nothing of what was there, from
// before the server's start or from another guest.
func TestAllocatedMemoryIsClear(t *testing.T) {
	f := fakecard.New(4 << 20)
	soil := func(b []byte) { copy(b, bytes.Repeat([]byte{0xa5}, len(b))) }
	soil(f.Bytes)
	d := newDriver(t, f, Options{})
	clean := func(r card.Run) {
		require.True(t, bytes.Equal(f.Bytes[r.Addr:][:r.Size], make([]byte, r.Size)), "%#x", r.Addr)
	}
	clean(d.PollArea())
	for range 2 {
		s := newShare(t, d, 0, 1)
		runs, err := s.AllocVRAM(1<<20, 1<<12)
		require.NoError(t, err)
		for _, r := range runs {
			clean(r)
			soil(f.Bytes[r.Addr:][:r.Size])
		}
		s.Close(false)
	}
}

// carryCard has a clock whose low word wraps around between two reads.
type carryCard struct {
	*fakecard.Card
	lows int
}

func (c *carryCard) Read32(bar int, off uint64) uint32 {
	switch uint32(off) {
	case regTimeHi:
		return 7 + uint32(min(c.lows, 1))
	case regTimeLo:
		if c.lows++; c.lows == 1 {
			return ^uint32(0)
		}
		return 5
	}
	return c.Card.Read32(bar, off)
}

func TestTime(t *testing.T) {
	d := newDriver(t, &carryCard{Card: fakecard.New(4 << 20)}, Options{})
	require.Equal(t, uint64(8<<32|5), d.Time())
}

// TestChannelsAreGuaranteed: each share can count on the channels that it was promised, whatever
// others take. None is promised what others were.
func TestChannelsAreGuaranteed(t *testing.T) {
	for _, promised := range []int{1, 4, 60} {
		d := newDriver(t, fakecard.New(16<<20), Options{})
		greedy, late, last := newShare(t, d, 0, 4), newShare(t, d, 1, promised), newShare(t, d, 2, 3)
		fill := func(s *share) (n int) {
			for ; ; n++ {
				if _, err := s.NewChannel(card.ChannelConfig{Space: spaceAt(0)}, nil); err != nil {
					require.ErrorIs(t, err, card.ErrChannels)
					return n
				}
			}
		}
		require.Equal(t, gf100.Channels-promised-3, fill(greedy))
		require.Equal(t, promised, fill(late))
		require.Equal(t, 3, fill(last))
		more := gf100.Channels - promised - 6
		_, err := d.NewShare(card.ShareConfig{Guaranteed: more, Tables: 1 << 20})
		require.ErrorContains(t, err, fmt.Sprintf("%d guaranteed channels: only %d of the card's 128", more, more-1))
	}
}

// TestShareMemory: channels come and go in any order. Their instance blocks never overlap, Tables is
// the rest of the share, and the memory of ended channels is zero. A share that is lost keeps its
// memory.
func TestShareMemory(t *testing.T) {
	f := fakecard.New(8 << 20)
	d := newDriver(t, f, Options{})
	rapid.Check(t, func(rt *rapid.T) {
		before := d.FreeBytes()
		s := newShare(t, d, 3, 2)
		var channels []*channel
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if n := len(channels); n > 0 && rapid.Bool().Draw(rt, "end") {
				i := rapid.IntRange(0, n-1).Draw(rt, "channel")
				end(t, channels[i])
				channels = append(channels[:i], channels[i+1:]...)
				continue
			}
			ch, _ := running(t, s)
			channels = append(channels, ch)
		}
		left := s.runs[0].Size
		used := make(map[uint64]bool)
		for _, ch := range channels {
			require.False(rt, used[ch.inst])
			used[ch.inst] = true
			left -= gf100.InstanceSize
		}
		for _, r := range s.Tables() {
			require.Zero(rt, r.Addr%gf100.InstanceSize)
			for at := r.Addr; at < r.Addr+r.Size; at += gf100.InstanceSize {
				require.False(rt, used[at])
			}
			left -= r.Size
		}
		require.Zero(rt, left, "memory of tables and of channels is all there is")
		require.Len(rt, f.Runlist(), len(channels))
		for _, ch := range channels {
			end(t, ch)
		}
		for _, r := range append(s.Memory(), d.PollArea()) {
			require.True(rt, bytes.Equal(f.Bytes[r.Addr:r.Addr+r.Size], make([]byte, r.Size)))
		}
		s.Close(false)
		require.Equal(rt, before, d.FreeBytes())
	})
	s, left := newShare(t, d, 0, 1), d.FreeBytes()
	s.Close(true)
	require.Equal(t, left, d.FreeBytes())
}

// TestNewChannel: a channel is bound and stopped, and gets what its configuration says. It is on
// the runlist from the next Commit of its own share on, until it is stopped.
func TestNewChannel(t *testing.T) {
	f := fakecard.New(8 << 20)
	d := newDriver(t, f, Options{})
	s, other := newShare(t, d, 5, 1), newShare(t, d, 6, 1)
	sp, err := s.NewSpace()
	require.NoError(t, err)
	c := card.ChannelConfig{
		Space: sp, Limit: 0x3fffffffff, Ring: card.Ring{Base: 0x9876543210, Log2: 9}, State: card.State{GPGet: 3, Ref: 4, Token: 5 << 40},
		Progress: card.Progress{Get: 6 << 33, TopLevelGet: 7 << 33, Ref: 8, GPGet: 9}, Put: 10, Prefer: 77,
	}
	made, err := s.NewChannel(c, nil)
	require.NoError(t, err)
	ch := made.(*channel)
	require.Equal(t, uint32(77), ch.ID())
	require.False(t, f.Enabled(77))
	require.Equal(t, c.State, ch.State())
	require.Equal(t, c.Progress, ch.Progress())
	require.Equal(t, c.Put, binary.LittleEndian.Uint32(f.Bytes[ch.USERD().Addr+gf100.USERDGPPut:]))
	b := f.Bytes[ch.inst:][:gf100.InstanceSize]
	dir, _, limit := gf100.InstanceSpace(b)
	userd, _ := gf100.InstanceUSERD(b)
	require.Equal(t, []uint64{sp.(*space).root.addr, c.Limit, ch.USERD().Addr}, []uint64{dir, limit, userd})
	require.Equal(t, []uint32{0x76543210 >> 3, 0x98, 9, 5, gf100.Channels},
		[]uint32{gf100.InstGPBaseLo.Get(b), gf100.InstGPBaseHi.Get(b), gf100.InstGPLimit2.Get(b), gf100.InstOwner.Get(b), gf100.InstKeep.Get(b)})

	second, _ := running(t, other)
	require.Equal(t, []uint32{uint32(second.id)}, f.Runlist(), "the first is not committed")
	require.True(t, s.Commit())
	require.Equal(t, []uint32{uint32(second.id), 77}, f.Runlist())
	ch.Doorbell(11)
	require.Equal(t, []fakecard.Write{{Reg: 77, V: 11}}, f.Doorbells())
	left, inTime := ch.Stop(false)
	require.True(t, left)
	require.False(t, inTime)
	require.True(t, s.Commit())
	require.Equal(t, []uint32{uint32(second.id)}, f.Runlist())
	ch.Unbind()
	_, bound := f.Instance(77)
	require.False(t, bound)
}
