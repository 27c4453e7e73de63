package hostile_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/hostile"
	"github.com/umbra-gpu/umbra/tests/testserver"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

const (
	wait = time.Minute
	tick = time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func attach(t testing.TB, m aperture.Map) (*guest.Guest, *testserver.PassThrough) {
	t.Helper()
	s, err := testserver.New(testserver.Config{Card: soft.Config{VRAM: 64 << 20}, Windows: passthrough.Config{Map: m}})
	require.NoError(t, err)
	g, err := guest.Attach(context.Background(), s.Socket(), guest.Config{Map: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.Close())
		require.NoError(t, s.Close())
	})
	return g, s
}

// works wants a guest that was reset to copy as if nothing had been.
func works(t require.TestingT, g *guest.Guest) {
	require.NoError(t, g.Reset())
	s, err := g.NewSpace()
	require.NoError(t, err)
	ch, err := g.NewChannel(5, s)
	require.NoError(t, err)
	src, err := g.AllocRAM(4096)
	require.NoError(t, err)
	dst, err := g.AllocVRAM(4096)
	require.NoError(t, err)
	want := bytes.Repeat([]byte("a copy after all "), 256)[:4096]
	copy(src.Data, want)
	require.NoError(t, s.Map(0x1000_0000, src, guest.Small))
	require.NoError(t, s.Map(0x2000_0000, dst, guest.Small))
	for _, e := range guest.CopyEngines {
		require.NoError(t, dst.Write(0, make([]byte, 4096)))
		require.NoError(t, ch.Copy(e, 0x2000_0000, 0x1000_0000, 4096))
		require.NoError(t, ch.Finish())
		got := make([]byte, 4096)
		require.NoError(t, dst.Read(0, got))
		require.Equal(t, want, got)
	}
}

// TestNothingEndsTheServer: no action of a guest ends its server, and a reset restores the
// device.
func TestNothingEndsTheServer(t *testing.T) {
	for _, m := range []aperture.Map{aperture.MapNone, aperture.MapAll} {
		t.Run("mapped "+m.String(), func(t *testing.T) {
			g, s := attach(t, m)
			rapid.Check(t, attack(g))
			require.Equal(t, m != aperture.MapNone, s.Device.Shown().PagesMoved.Load() > 0)
		})
	}
}

func FuzzNothingEndsTheServer(f *testing.F) {
	g, _ := attach(f, aperture.MapAll)
	for seed := range byte(8) {
		// As much as the longest draw takes: rapid passes over an input that ends early.
		raw := make([]byte, 64<<10)
		rand.NewChaCha8([32]byte{seed}).Read(raw)
		f.Add(raw)
	}
	f.Fuzz(rapid.MakeFuzz(attack(g)))
}

func attack(g *guest.Guest) func(*rapid.T) {
	return func(t *rapid.T) {
		require.NoError(t, g.Reset())
		a, err := hostile.New(g)
		require.NoError(t, err)
		for _, act := range hostile.Gen(40).Draw(t, "actions") {
			require.NoError(t, a.Do(act))
		}
		require.NoError(t, a.Unmapped())
		works(t, g)
	}
}

// TestAttacksReachForeignMemory: without checks, as on a card in pass-through, the
// attacker's entries and engines reach foreign memory, and faults happen.
func TestAttacksReachForeignMemory(t *testing.T) {
	g, s := attach(t, aperture.MapAll)
	a, err := hostile.New(g)
	require.NoError(t, err)
	secret := bytes.Repeat([]byte{0xc5, 0x3a, 0x77, 0x91}, 16)
	require.True(t, s.Card.WriteVRAM(8<<20, secret))
	const frame = 8 << 20
	at := hostile.Value{Base: hostile.Zero, Off: frame}
	seen := false
	a.Seen = func(_ hostile.Action, p []byte) { seen = seen || bytes.Contains(p, secret[:8]) }
	require.NoError(t, a.Do(hostile.Action{Kind: hostile.Window, V: hostile.Value{Off: frame, Shift: 16}}))
	require.True(t, seen, "PRAMIN")

	for _, e := range guest.CopyEngines {
		clear(a.Loot())
		require.NoError(t, a.Do(hostile.Action{Kind: hostile.Entry, V: at, Engine: e}))
		require.Eventually(t, func() bool { return bytes.Contains(a.Loot(), secret) }, wait, tick, "%v", e)
	}
	before := s.Card.Stats().MMUFaults.Load()
	require.NoError(t, a.Do(hostile.Action{Kind: hostile.Entry, V: hostile.Value{Base: hostile.VRAMEnd}}))
	require.Eventually(t, func() bool { return s.Card.Stats().MMUFaults.Load() > before }, wait, tick)

	require.NoError(t, a.Restart())
	before = s.Card.Stats().UnboundDoorbells.Load()
	require.NoError(t, a.Do(hostile.Action{Kind: hostile.Ring, Chan: 77}))
	require.Eventually(t, func() bool { return s.Card.Stats().UnboundDoorbells.Load() > before }, wait, tick)
	works(t, g)
}

// Random actions do all of it: faults, errors, copies, invalidates.
func TestGeneratorReachesEverything(t *testing.T) {
	g, server := attach(t, aperture.MapAll)
	gen := hostile.Gen(60)
	kinds := map[hostile.Kind]int{}
	for i := range 40 {
		require.NoError(t, g.Reset())
		a, err := hostile.New(g)
		require.NoError(t, err)
		for _, act := range gen.Example(i) {
			kinds[act.Kind]++
			require.NoError(t, a.Do(act))
		}
	}
	for k := hostile.Access; k <= hostile.Restart; k++ {
		require.NotZero(t, kinds[k], "%v", k)
	}
	s := server.Card.Stats()
	for what, n := range map[string]uint64{
		"MMU faults": s.MMUFaults.Load(), "PBDMA errors": s.PBDMAErrors.Load(), "BAR faults": s.BARFaults.Load(),
		"unbound doorbells": s.UnboundDoorbells.Load(), "invalidates": s.Invalidates.Load(), "releases": s.Releases.Load(),
	} {
		require.NotZero(t, n, what)
	}
	works(t, g)
}

// TestUnmappedRAMIsChecked: an engine's write to RAM that is not mapped is detected, even
// if a mapping covers it later.
func TestUnmappedRAMIsChecked(t *testing.T) {
	for _, write := range []bool{false, true} {
		g, s := attach(t, aperture.MapAll)
		a, err := hostile.New(g)
		require.NoError(t, err)
		ram := uint64(len(g.Memory().Data))
		entry := hostile.Action{Kind: hostile.Entry, V: hostile.Value{Base: hostile.Hole}, Bits: 2 << 33, Engine: guest.CE0, Write: write}
		require.NoError(t, a.Do(entry))
		barred := func() bool { // both channels have faulted, so that neither uses the later mapping
			return s.Card.Use(1).Barred && s.Card.Use(2).Barred
		}
		require.Eventually(t, barred, wait, tick)
		require.NoError(t, g.Raw().UnmapAll())
		require.NoError(t, g.Raw().Map(g.RAMBase(), 0, ram, client.ReadWrite))
		require.NoError(t, a.Unmapped())
		require.NoError(t, a.Do(entry))
		require.Eventually(t, func() bool { return a.Unmapped() != nil }, wait, tick)
	}
}
