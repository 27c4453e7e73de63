package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	hopper "github.com/umbra-gpu/umbra/devmodel/guest/gh100"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// interrupts counts those of a guest.
type interrupts struct{ n atomic.Int64 }

func (i *interrupts) Interrupt(l card.Line) {
	if l.Edge {
		i.n.Add(1)
	}
}

// TestHopper: a driver of a GH100 copies on the software card, learns of a fault that ends only its channel,
// and finds its memory and its channels after a suspend with a reset. When its machine has gone, nothing
// is left.
func TestHopper(t *testing.T) {
	c, err := soft.New(soft.Config{VRAM: 6 << 30})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	s := share(t, c, Native, vfiouser.Options{}, aggregator.Options{})
	cfg := GPUConfig{Share: aggregator.GuestConfig{Name: "a", VRAM: 4<<30 + gsp.Reserved, Channels: 3}, Device: GH100{}, Socket: t.TempDir() + "/a"}
	e, err := s.Add(cfg)
	require.NoError(t, err)
	v := e.Virtual
	const base, n = 0x8000_0000, 64 << 10
	ram, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED) // no memory of Go's: both sides use it at once
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(ram)) })
	d := &hopper.Driver{Bus: v.GPU, RAM: ram, Base: base, Timeout: patience, Fail: func(a ...any) { t.Fatal(a...) }}
	require.NoError(t, v.Guest.MapDMA(base, card.Mapping{Mem: d.RAM, Write: true}))
	host := new(interrupts)
	v.GPU.WriteConfig(0x68, []byte{5, 0x78, 1, 0}) // MSI
	v.GPU.AttachHost(host)
	d.Boot()
	space := d.NewSpace()
	at, from := d.AllocRAM(n)
	toAt, to := d.AllocRAM(n)
	src, dst, vram := space.Map(hopper.RAM, at, n), space.Map(hopper.RAM, toAt, n), space.Map(hopper.VRAM, d.AllocVRAM(n), n)
	channels := []*hopper.Channel{space.NewChannel(9, hopper.Graphics), space.NewChannel(2047, hopper.Copy1)}
	there := func(ch *hopper.Channel) {
		t.Helper()
		ch.Wait(ch.Submit(hopper.Copy(vram, src, n)...))
	}
	back := func(ch *hopper.Channel) {
		t.Helper()
		clear(to)
		ch.Wait(ch.Submit(hopper.Copy(dst, vram, n)...))
		require.True(t, bytes.Equal(from, to))
	}
	seen := uint32(0)
	for i, ch := range channels {
		_, _ = rand.Read(from)
		there(ch)
		back(channels[1-i])
	}
	require.Eventually(t, func() bool { return host.n.Load() > 0 }, patience, time.Millisecond)
	d.Wait("interrupts of both", func() bool {
		engines, _ := d.Interrupts()
		seen |= engines
		return seen == 1<<0|1<<2
	})

	other := d.NewSpace()
	bad := other.NewChannel(5, hopper.Graphics)
	bad.Submit(hopper.Copy(0x123_4000, 0x567_8000, 64)...)
	var rc hopper.Message
	d.Wait("the fault's event", func() bool {
		var ok bool
		rc, ok = d.Receive()
		return ok && rc.Function == 0x1004
	})
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(rc.Payload[at:]) }
	require.Equal(t, []uint32{5, gsp.ErrorMMU}, []uint32{word(4), word(0x10)})
	require.Contains(t, []uint32{0x123_4000, 0x567_8000}, word(0x1c))
	bad.Close()
	other.Close()
	again := space.NewChannel(5, hopper.Graphics)
	there(again)
	back(again)
	again.Close()

	_, _ = rand.Read(from)
	there(channels[0])
	channels[0].Wait(channels[0].Submit(0x2001_6000, 0x902d)) // a 2D object on subchannel 3
	d.Suspend()
	require.NoError(t, v.GPU.Reset())
	v.GPU.WriteConfig(0x68, []byte{5, 0x78, 1, 0})
	d.Resume()
	for _, ch := range channels {
		back(ch)
	}
	channels[0].Wait(channels[0].Submit(0x2001_6040, 0)) // NO_OPERATION
	require.Empty(t, v.unsupported())
	d.Write32(0xbb0090, 77)
	require.EqualValues(t, 1, v.Guest.Stats().Channels.BadDoorbell.Load())
	require.NotZero(t, d.Control(1, 2, 0x20800abc, nil))
	var log bytes.Buffer
	e.logEvents(slog.New(slog.NewTextHandler(&log, nil)))
	require.Contains(t, log.String(), `msg="the driver asks for control 0x20800abc, which release 570.144 of the emulation does not have" gpu=a`)
	require.Equal(t, []api.Unsupported{{Kind: "control", Number: 0x20800abc, Count: 1}}, e.Status().Unsupported)
	require.Empty(t, v.Guest.QuarantineReason())

	v.plug(nil)
	require.NoError(t, v.Dirty())
	require.Nil(t, v.Guest.CardChannel(0))
	require.EqualValues(t, v.Guest.Stats().Channels.Binds.Load(), v.Guest.Stats().Channels.Unbinds.Load())
}
