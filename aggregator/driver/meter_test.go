package driver

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// TestMeter: what the meter says of a channel by what a card's registers show.
func TestMeter(t *testing.T) {
	f := fakecard.New(4 << 20)
	d := newDriver(t, f, Options{})
	s := newShare(t, d, 1, 2)
	m, told := newMeter(d), 0 // one without a goroutine
	m.onUse = func() { told++ }
	var chans [2]*channel
	for i := range chans {
		chans[i], _ = running(t, s)
		m.add(chans[i], &card.ChannelConfig{Ring: card.Ring{Log2: 4}})
	}
	a, b := chans[0], chans[1]
	show := func(ch *channel, status, get uint32) {
		f.SetChannel(ch.id, status)
		f.WriteVRAM(ch.userd+gf100.USERDGPGet, binary.LittleEndian.AppendUint32(nil, get))
	}
	look := func(ch *channel, status, get uint32) card.Use {
		show(ch, status|gf100.ChannelEnabled, get)
		time.Sleep(2 * lookMin)
		m.stale = true
		return m.Use(ch.id)
	}
	const on = gf100.ChannelBusy | gf100.ChannelPending
	m.submitted(a, 3)
	m.enabled(a, true)
	u := look(a, 0, 0)
	require.False(t, u.Idle || u.Barred, "the card has not taken the doorbell yet")
	time.Sleep(5 * time.Millisecond)
	u = look(a, on, 2)
	require.True(t, u.Running)
	require.EqualValues(t, 1, u.Ended, "the second may be on an engine")
	require.GreaterOrEqual(t, u.Busy[card.Graphics], 5*time.Millisecond)

	require.True(t, look(a, gf100.ChannelAcquire, 2).Barred)
	told = 0
	for range acquireLooks - 1 {
		require.True(t, look(a, on, 2).Barred, "it tries again")
	}
	require.Zero(t, told)
	require.False(t, look(a, on, 2).Barred)
	require.Equal(t, 1, told)

	m.submitted(b, 1) // both work for the same engine at the same time
	m.enabled(b, true)
	show(a, gf100.ChannelEnabled|on, 2)
	graphics := func() (d time.Duration) {
		for _, ch := range chans {
			d += m.channels[ch.id].Busy[card.Graphics]
		}
		return d
	}
	at := m.at.Add(-graphics())
	look(b, on, 0)
	require.LessOrEqual(t, graphics(), m.at.Sub(at))
	f.Set(regEngineStatus+gf100.EngineCE0*4, gf100.EngineBusy|uint32(b.id))
	u = look(b, 0, 1)
	require.True(t, u.Idle && u.Ended == 1)
	require.Positive(t, u.Busy[card.Graphics+1])
	show(a, 0, 3)
	m.stale = true
	u = m.Use(a.id)
	require.True(t, u.Barred && u.Ended == 2, "a stopped channel may be in the middle of an entry")
	m.enabled(a, true)
	u = look(a, 0, 3)
	require.True(t, u.Idle && u.Ended == 3)
}

// slowCard is a card with a register that takes long to read.
type slowCard struct {
	*fakecard.Card
	slow  uint64
	looks int // at the register
}

func (s *slowCard) Read32(bar int, off uint64) uint32 {
	if off == s.slow {
		s.looks++
		time.Sleep(100 * time.Millisecond)
	}
	return s.Card.Read32(bar, off)
}

// TestMeterLooksOnce: a caller that asks for all channels in turn causes one look, however long that takes.
func TestMeterLooksOnce(t *testing.T) {
	slow := &slowCard{Card: fakecard.New(4 << 20)}
	d := newDriver(t, slow, Options{})
	s := newShare(t, d, 1, 32)
	m := newMeter(d)
	m.onUse = func() {}
	var chans [32]*channel
	for i := range chans {
		chans[i], _ = running(t, s)
		m.add(chans[i], &card.ChannelConfig{Ring: card.Ring{Log2: 4}})
		m.submitted(chans[i], 1)
	}
	m.stale, slow.slow = false, uint64(chans[0].reg(regChannel))
	for _, ch := range chans {
		m.Use(ch.id)
	}
	require.Equal(t, 1, slow.looks)
}
