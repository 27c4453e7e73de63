package aggregator

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	face "github.com/umbra-gpu/umbra/aggregator/face/gh100"
	device "github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestHopperChannels: a channel is opened as GSP describes it once its space has a directory, runs when it
// is scheduled, and has left the card when that is settled. After a sleep it goes on where it was.
func TestHopperChannels(t *testing.T) {
	h := newHopper(t, 0)
	c := channel(2047)
	c.Engine, c.Admin = 1, true // the first copy engine, on the runlist of graphics
	h.put(c.USERD+gh100.USERDGPGet, 3)
	h.put(c.USERD+gh100.USERDGPPut, 3)
	h.NewSpace(1)
	require.NoError(t, h.OpenChannel(c))
	h.Schedule(c.ID, true)
	h.settle()
	require.Empty(t, h.card.opened, "without a directory")
	h.SetDirectory(1, hopperRoot, gsp.TargetVRAM)
	h.settle()
	now := h.card.opened[0]
	now.Space = nil
	require.Equal(t, card.ChannelConfig{
		Limit: 1<<57 - 1, Engine: card.Graphics, Ring: card.Ring{Base: hopperRing, Log2: 10}, Put: 3,
		State: card.State{GPGet: 3}, Progress: card.Progress{GPGet: 3}, Privileged: true,
	}, now)
	ch := h.channel(c.ID).Card()
	require.True(t, h.f.Enabled(ch.ID()))
	h.put(c.USERD+gh100.USERDGPPut, 7)
	require.Empty(t, h.f.Doorbells(), "GP_PUT is no doorbell")
	h.Doorbell(5) // nobody's
	h.Doorbell(c.ID)
	require.Equal(t, []regWrite{{Reg: ch.ID(), V: 7}}, h.f.Doorbells())

	h.f.Hold(preempts, true)
	h.Schedule(c.ID, false)
	require.False(t, h.f.Enabled(ch.ID()))
	require.False(t, h.Settled(), "it may still be on the card")
	h.f.Hold(preempts, false)
	h.settle()

	binary.LittleEndian.PutUint32(h.f.Bytes[ch.USERD().Addr+gf100.USERDGPGet:], 5)
	h.f.Hold(preempts, true)
	h.CloseChannel(c.ID)
	require.False(t, h.Settled(), "it may still use memory")
	h.f.Hold(preempts, false)
	h.settle()
	h.DropSpace(1)
	require.Empty(t, h.g.channels.CardChannels())
	require.NoError(t, h.Reset(true))
	require.EqualValues(t, 5, h.word(c.USERD+gh100.USERDGPGet))
	h.NewSpace(2)
	h.SetDirectory(2, hopperRoot, gsp.TargetVRAM)
	c.Space, c.Engine, c.Admin = 2, 2, false
	ch = h.open(c).Card()
	now = h.card.opened[len(h.card.opened)-1]
	require.Equal(t, []any{uint32(5), uint32(7), card.Copy0 + 1, false}, []any{now.State.GPGet, now.Put, now.Engine, now.Privileged})
	require.True(t, h.f.Enabled(ch.ID()))
	h.SetDirectory(2, 0, gsp.TargetNone)
	h.settle()
	require.Empty(t, h.g.channels.CardChannels())
	require.Empty(t, h.ended)
	require.NoError(t, h.Reset(false))
	require.Zero(t, h.word(c.USERD+gh100.USERDGPPut))
}

// TestHopperSleep: a channel goes on after a sleep with the state of its last life, not of an earlier channel
// with its id.
func TestHopperSleep(t *testing.T) {
	h := newHopper(t, 0)
	h.NewSpace(1)
	h.SetDirectory(1, hopperRoot, gsp.TargetVRAM)
	c := channel(5)
	for token := range uint64(2) {
		inst, _ := h.f.Instance(h.open(c).Card().ID())
		require.Zero(t, h.card.opened[token].State.Token)
		gf100.InstTokenLo.Put(h.f.Bytes[inst:], uint32(token)+1)
		h.CloseChannel(5)
		h.settle()
	}
	require.NoError(t, h.Reset(true))
	h.NewSpace(1)
	h.SetDirectory(1, hopperRoot, gsp.TargetVRAM)
	c.Opened = true
	h.open(c)
	require.EqualValues(t, 2, h.card.opened[2].State.Token)
}

// TestHopperFailures: a failure names the guest's channel, in the chip's numbers, and the channel does not
// run again until its driver has freed it. A channel that cannot be had fails.
func TestHopperFailures(t *testing.T) {
	h := newHopper(t, 2)
	h.NewSpace(1)
	h.SetDirectory(1, hopperRoot, gsp.TargetVRAM)
	h.open(channel(9))
	failed := func(n int) device.Failure {
		t.Helper()
		var last device.Failure
		require.Eventually(t, func() (there bool) {
			h.locked(func() {
				if there = len(h.ended) == n; there {
					last = h.ended[n-1]
				}
			})
			return there
		}, patience, tick)
		return last
	}
	n := 0
	for _, x := range []struct {
		f    card.Fault
		want device.Failure
	}{
		{card.Fault{VA: 0x5000, Write: true, Reason: shadowpt.PageReadOnly},
			device.Failure{Kind: gsp.ErrorMMU, Addr: 0x5000, Access: 6, Text: "an address without a page: write at 0x5000"}},
		{card.Fault{Kind: card.NoMethod, Class: 0xc86f, Method: 0x300, Data: 5},
			device.Failure{Kind: gsp.ErrorPBDMA, Text: "a method without an engine: subchannel 0, class c86f, method 0x300, data 0x5"}},
		{card.Fault{Kind: card.BadData, Class: 0xcb97, Text: "draws are not there"}, device.Failure{Kind: gsp.ErrorGraphics, Text: "draws are not there"}},
	} {
		id := 100 + uint32(n)
		h.open(channel(id)).Fault(x.f)
		x.want.Channel = id
		n++
		require.Equal(t, x.want, failed(n))
		h.Schedule(id, true)
		h.SetDirectory(1, hopperRoot, gsp.TargetVRAM)
		h.settle()
		require.Nil(t, h.channel(id))
		require.NotNil(t, h.channel(9))
		require.ErrorContains(t, h.OpenChannel(channel(8)), "all the channels")
		require.ErrorContains(t, h.OpenChannel(channel(id)), "open already")
		h.CloseChannel(id)
		h.settle()
		require.True(t, h.f.Enabled(h.open(channel(id)).Card().ID()))
		h.CloseChannel(id)
		h.settle()
	}
	outside := channel(7)
	outside.USERD = hopperVRAM
	require.NoError(t, h.OpenChannel(outside))
	require.Equal(t, []any{uint32(7), uint32(gsp.ErrorPBDMA)}, []any{failed(n + 1).Channel, failed(n + 1).Kind})
	odd := channel(8)
	odd.Entries = 1000
	require.ErrorContains(t, h.OpenChannel(odd), "must be a power of two")
	st := h.g.ChannelStats()
	for r := range device.Rules {
		h.BrokeRule(r)
	}
	require.Equal(t, []uint64{1, 3, 2, 1}, []uint64{st.BadChannel.Load(), st.OverQuota.Load(), st.BadGSP.Load(), st.BadDoorbell.Load()})

	h.channel(9).Completed(1<<card.Graphics | 1<<card.Copy0 | 1<<(card.Copy0+1) | 1<<(card.Copy0+2))
	require.Eventually(t, func() (told bool) {
		h.locked(func() { told = slices.Equal(h.done, []int{0, 2}) })
		return told
	}, patience, tick)
}

// TestHopperDirectoryLeaves: a channel whose space loses its directory while it is being opened has not
// failed.
func TestHopperDirectoryLeaves(t *testing.T) {
	h := newHopper(t, 0)
	h.NewSpace(1)
	h.SetDirectory(1, hopperRoot, gsp.TargetVRAM)
	h.open(channel(1))
	h.f.Hold(preempts, true)
	h.SetDirectory(1, 2*hopperRoot, gsp.TargetVRAM)
	eventually(t, h.g, func() bool { return h.g.state.Pending.empty() }) // the worker waits for the channel to leave
	h.SetDirectory(1, 0, gsp.TargetNone)
	h.f.Hold(preempts, false)
	h.settle()
	h.SetDirectory(1, hopperRoot, gsp.TargetVRAM)
	h.settle()
	require.NotNil(t, h.channel(1))
	require.Eventually(t, h.g.reports.Idle, patience, tick)
	require.Empty(t, h.ended)
	h.CloseChannel(1)
	require.Zero(t, h.g.channels.May, "the next one in its slot does not run by itself")
}

// TestHopperWindows: BAR1 shows what the tables at its root map, also after a reset, and BAR3 what the
// entry maps that GSP was given.
func TestHopperWindows(t *testing.T) {
	h := newHopper(t, 0)
	tables := func(page uint64) (entry uint64) {
		const dir = 1 << 1                                               // in VRAM
		entry = page | 1                                                 // of the second page
		for _, at := range []uint64{0x4008, 0x3008, 0x2000, 0x1000, 0} { // small pages' table is named by a second word
			h.WriteVRAM(page+0x10000+at, binary.LittleEndian.AppendUint64(nil, entry))
			entry = page + 0x10000 + at&^0xfff | dir
		}
		return entry
	}
	see := func(bar int) (v [4]byte) {
		h.ReadBAR(bar, 0x1010, v[:])
		return v
	}
	none := [4]byte{0xff, 0xff, 0xff, 0xff}
	for _, keep := range []bool{true, false} {
		entry := tables(0x400000)
		h.WriteVRAM(gsp.BAR1Root(hopperVRAM), binary.LittleEndian.AppendUint64(nil, entry))
		h.Invalidate(gsp.BAR1Root(hopperVRAM), gsp.TargetVRAM, false)
		require.Equal(t, none, see(card.BAR3))
		h.SetBAR2(tables(0x500000))
		h.WriteBAR(card.BAR1, 0x1010, []byte("bar1"))
		h.WriteBAR(card.BAR3, 0x1010, []byte("bar3"))
		require.Equal(t, "bar1", string(binary.LittleEndian.AppendUint32(nil, h.word(0x400010))))
		require.Equal(t, "bar3", string(binary.LittleEndian.AppendUint32(nil, h.word(0x500010))))
		require.NoError(t, h.Reset(keep))
		require.Equal(t, keep, see(card.BAR1) == [4]byte([]byte("bar1")))
		require.Equal(t, none, see(card.BAR3))
	}
	h.SetBAR2(tables(0x500000))
	h.SetBAR2(0)
	require.Equal(t, none, see(card.BAR3))
}

// TestHopperHostile: whatever GSP passes on of a hostile driver quarantines nobody and settles, within the
// guest's channels. Afterwards nothing of it is on the card. A face that takes over the state has the same.
func TestHopperHostile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const most = 5
		h := newHopper(rt, most)
		id, space := rapid.Uint32Range(0, 9), rapid.Uint64Range(0, 3)
		any32, any64 := rapid.OneOf(rapid.Uint32Range(0, 64), rapid.Uint32()), rapid.OneOf(rapid.Uint64Range(0, hopperVRAM), rapid.Uint64())
		root, in := rapid.SampledFrom([]uint64{hopperRoot, 0, hopperVRAM - 8, hopperVRAM, 1 << 51}), rapid.SampledFrom([]gsp.Target{0, 1, 1, 1, 2})
		entries := rapid.OneOf(rapid.SampledFrom([]uint32{1, 1024, 1 << 24}), rapid.Uint32())
		rt.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				_ = h.OpenChannel(gsp.Channel{
					ID: id.Draw(t, "id"), Space: space.Draw(t, "space"), Engine: rapid.IntRange(-1, 3).Draw(t, "engine"), Ring: any64.Draw(t, "ring"),
					Entries: entries.Draw(t, "entries"), USERD: any64.Draw(t, "userd"), Instance: any64.Draw(t, "instance"), Admin: rapid.Bool().Draw(t, "admin"),
				})
			},
			"close":     func(t *rapid.T) { h.CloseChannel(id.Draw(t, "id")) },
			"schedule":  func(t *rapid.T) { h.Schedule(rapid.OneOf(id, any32).Draw(t, "id"), rapid.Bool().Draw(t, "on")) },
			"doorbell":  func(t *rapid.T) { h.Doorbell(rapid.OneOf(id, any32).Draw(t, "id")) },
			"new":       func(t *rapid.T) { h.NewSpace(space.Draw(t, "space")) },
			"drop":      func(t *rapid.T) { h.DropSpace(space.Draw(t, "space")) },
			"directory": func(t *rapid.T) { h.SetDirectory(space.Draw(t, "space"), root.Draw(t, "root"), in.Draw(t, "in")) },
			"write": func(t *rapid.T) {
				h.WriteVRAM(any64.Draw(t, "at"), binary.LittleEndian.AppendUint64(nil, any64.Draw(t, "v")))
			},
			"table": func(t *rapid.T) {
				h.WriteVRAM(hopperRoot+any64.Draw(t, "at")%64*8, binary.LittleEndian.AppendUint64(nil, hopperRoot|1<<1))
			},
			"bar2": func(t *rapid.T) { h.SetBAR2(any64.Draw(t, "entry")) },
			"bar": func(t *rapid.T) {
				h.WriteBAR(rapid.SampledFrom([]int{1, 3}).Draw(t, "bar"), any64.Draw(t, "off"), []byte{1, 2, 3, 4})
			},
			"flush": func(t *rapid.T) { h.Invalidate(root.Draw(t, "root"), in.Draw(t, "in"), rapid.Bool().Draw(t, "all")) },
			"fault": func(t *rapid.T) {
				if ch := h.g.cardChannel(uint8(rapid.IntRange(0, most).Draw(t, "slot"))); ch != nil {
					ch.Fault(card.Fault{Kind: card.Kind(rapid.IntRange(0, int(card.ProgramError)).Draw(t, "kind")), VA: any64.Draw(t, "va")})
				}
			},
			"": func(t *rapid.T) {
				require.LessOrEqual(t, len(h.g.channels.CardChannels()), most)
				require.Empty(t, h.g.QuarantineReason())
			},
		})
		h.settle()
		st, second := h.State(), face.New(h)
		require.NoError(rt, second.SetState(st))
		require.Equal(rt, st, second.State())
		opened := 0
		for i := range st.Slots {
			if st.Slots[i].Opened {
				opened++
				h.CloseChannel(st.Slots[i].ID)
			}
		}
		require.LessOrEqual(rt, opened, most)
		h.settle()
		require.Empty(rt, h.g.channels.CardChannels())
		require.Zero(rt, h.g.channels.Bound)
		require.Zero(rt, h.g.channels.May)
	})
}

// TestHopperStates: a state that is not one is refused.
func TestHopperStates(t *testing.T) {
	h := newHopper(t, 0)
	h.NewSpace(1)
	require.NoError(t, h.OpenChannel(channel(3)))
	require.NoError(t, h.OpenChannel(channel(4)))
	for want, spoil := range map[string]func(*face.FaceState){
		"version 2":    func(s *face.FaceState) { s.Version++ },
		"memory 3":     func(s *face.FaceState) { s.Spaces[1] = face.Directory{In: 3} },
		"twice":        func(s *face.FaceState) { s.Slots[7] = s.Slots[1] },
		"below 2048":   func(s *face.FaceState) { s.Slots[1].ID = gsp.Channels },
		"engine 3":     func(s *face.FaceState) { s.Slots[1].Engine = 3 },
		"power of two": func(s *face.FaceState) { s.Slots[1].Entries = 3 },
	} {
		st := h.State()
		spoil(&st)
		require.ErrorContains(t, h.SetState(st), want, fmt.Sprint(want))
	}
}
