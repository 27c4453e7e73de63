package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"

	face "github.com/umbra-gpu/umbra/aggregator/face/gf100"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// TestFaceState: a face that takes over a state goes on as the first one.
func TestFaceState(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	bindChannel(t, g, 1)
	list(t, g, 1)
	first, second := gpu(g), face.New(newRecorder())
	second.Connect(g)
	first.Set(devgf100.BAR1Block, gf100.BlockVirtual|instAt>>12)
	first.Set(devgf100.PRAMINBase, instAt>>16)
	st := first.State()
	require.NoError(t, second.SetState(st))
	require.Equal(t, st, second.State())
	var want, got [8]byte
	at := gf100.InstanceSize + uint64(gf100.InstUSERDLo.Offset)
	first.Read(devgf100.PRAMIN, at, want[:])
	second.Read(devgf100.PRAMIN, at, got[:])
	require.NotZero(t, want)
	require.Equal(t, want, got)
	f1, _ := first.Read(devgf100.WindowBAR1, 0x1000, want[:])
	f2, ok := second.Read(devgf100.WindowBAR1, 0x1000, got[:])
	require.False(t, ok)
	require.Equal(t, f1, f2)
	for want, spoil := range map[string]func(*face.FaceState){
		"version 2":    func(s *face.FaceState) { s.Version++ },
		"channel 128;": func(s *face.FaceState) { s.Served[0] = gf100.Channels + 1 },
	} {
		bad := st
		spoil(&bad)
		require.ErrorContains(t, second.SetState(bad), want)
	}
}
