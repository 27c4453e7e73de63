package aggregator

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	face "github.com/umbra-gpu/umbra/aggregator/face/gh100"
	device "github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// anyClass is a card that takes channels of any class, and remembers how they were described.
type anyClass struct {
	card.GPU
	opened []card.ChannelConfig // by the one worker of a test
}

type anyShare struct {
	card.Share
	card *anyClass
}

func (a *anyClass) NewShare(c card.ShareConfig) (card.Share, error) {
	c.Class = gf100.ChannelClass
	s, err := a.GPU.NewShare(c)
	return anyShare{s, a}, err
}

func (s anyShare) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	s.card.opened = append(s.card.opened, c)
	return s.Share.NewChannel(c, ev)
}

// hopper is a guest that sees a GH100, on a card that runs nothing.
type hopper struct {
	*face.Face
	t     tester
	g     *Guest
	card  *anyClass
	f     *fakeCard
	mu    sync.Mutex // guards what follows
	done  []int
	ended []device.Failure
}

func (h *hopper) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *hopper) Completed(engine int) { h.locked(func() { h.done = append(h.done, engine) }) }
func (h *hopper) Done()                {}

func (h *hopper) Failed(x device.Failure) {
	if h.Settled() {
		h.t.Errorf("the id of channel %d may be another's when its failure arrives", x.Channel)
	}
	h.locked(func() { h.ended = append(h.ended, x) })
}

const (
	hopperVRAM = 32 << 20
	hopperRoot = 0x100000
	hopperRing = 0x7_1234_5000
)

func newHopper(t tester, mostChannels int) *hopper {
	t.Helper()
	h := &hopper{t: t, f: fakecard.New(fakeVRAM)}
	gpu, err := driver.New(h.f, driver.Options{Timeout: patience})
	require.NoError(t, err)
	h.card = &anyClass{GPU: gpu}
	a, err := New(h.card, Options{})
	require.NoError(t, err)
	h.Face = face.New(h)
	h.g, err = a.AddGuest(GuestConfig{Name: "h", VRAM: hopperVRAM, Tables: 2 << 20, Channels: mostChannels}, h.Face)
	require.NoError(t, err)
	h.Connect(h.g)
	t.Cleanup(func() {
		h.f.HoldAll(false)
		require.NoError(t, h.g.Remove())
		require.NoError(t, a.Close())
	})
	return h
}

func (h *hopper) settle() {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return h.Settled() && h.Invalidated() }, patience, tick/10)
	settleRound(h.g)
}

// channel describes a channel of space 1 with its USERD and its instance block apart from the others'.
func channel(id uint32) gsp.Channel {
	return gsp.Channel{
		ID: id, Space: 1, Ring: hopperRing, Entries: 1024, USERD: 0x10000 + uint64(id)*gh100.USERDSize, Instance: 0x200000 + uint64(id)<<12,
	}
}

// open opens a channel that may run, and returns the card's.
func (h *hopper) open(c gsp.Channel) *channels.Channel {
	h.t.Helper()
	require.NoError(h.t, h.OpenChannel(c))
	h.Schedule(c.ID, true)
	h.settle()
	ch := h.channel(c.ID)
	require.NotNil(h.t, ch)
	return ch
}

// channel is the card's channel behind the guest's, nil if there is none.
func (h *hopper) channel(id uint32) *channels.Channel {
	st := h.State()
	if slot := slices.IndexFunc(st.Slots[:], func(s face.Slot) bool { return s.Opened && s.ID == id }); slot >= 0 {
		return h.g.cardChannel(uint8(slot))
	}
	return nil
}

func (h *hopper) word(addr uint64) uint32 {
	var b [4]byte
	h.ReadVRAM(addr, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (h *hopper) put(addr uint64, v uint32) {
	h.WriteVRAM(addr, binary.LittleEndian.AppendUint32(nil, v))
}
