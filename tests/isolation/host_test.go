package isolation

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestHostGate is TestHopperGate for a card whose memory the test cannot see, such as one of the host's driver
// (testserver.EnvCard): a victim's secret lies in its VRAM and RAM, and the victim's own copies show whether it changed. A
// neighbour copies on.
func TestHostGate(t *testing.T) {
	h := &hopperWard{Ward: &Ward{options: options.Mapped}, t: t}
	var err error
	h.Shared, err = testserver.NewSharedWith(testserver.SharedConfig{Card: soft.Config{VRAM: 14 << 30}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	for _, name := range []string{"attacker", "victim", "neighbour"} {
		_, err := h.Add(rig.Hopper.GPU(aggregator.GuestConfig{Name: name, Map: aperture.MapAll, Channels: 16}))
		require.NoError(t, err)
	}
	h.Endpoint = h.GPUs[0]
	copiers := []*rig.Copier{nil, nil, nil}
	for i := 1; i < len(copiers); i++ {
		copiers[i], err = rig.NewCopier(rig.Hopper, h.GPUs[i].Socket, guest.Config{RAM: 16 << 20, Map: true}, i)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, copiers[i].Close()) })
	}
	h.neighbour = copiers[2]
	victim, want := copiers[1], bytes.Repeat(secrets, (4<<20)/len(secrets))
	from, ram, err := victim.MapRAM(uint64(len(want)))
	require.NoError(t, err)
	back, came, err := victim.MapRAM(uint64(len(want)))
	require.NoError(t, err)
	vram, err := victim.MapVRAM(uint64(len(want)))
	require.NoError(t, err)
	copy(ram, want)
	require.NoError(t, victim.Ch.Copy(vram, from, uint64(len(want))))
	require.NoError(t, victim.Ch.Finish())

	h.machine, err = guest.Plug(t.Context(), h.Endpoint.Socket, h.client())
	require.NoError(t, err)
	for i, k := range hopperCases {
		for j, at := range h.places() {
			if !scale.Release() && !testserver.HostCard() && j != i%len(h.places()) {
				continue
			}
			var list []hopperAction
			for n, word := range words(at)[:k.words] {
				list = append(list, hopperAction{i, at, word, n%2 == 0})
			}
			t.Run(fmt.Sprintf("%s at %#x", k.name, at), func(t *testing.T) { h.attack(t, list) })
		}
	}
	if testserver.HostCard() {
		for i := range random {
			h.attack(t, h.draw().Example(i))
		}
	}
	clear(came)
	require.NoError(t, victim.Ch.Copy(back, vram, uint64(len(want))))
	require.NoError(t, victim.Ch.Finish())
	require.True(t, bytes.Equal(want, came), "the victim's VRAM changed")
	require.True(t, bytes.Equal(want, ram), "the victim's RAM changed")
}
