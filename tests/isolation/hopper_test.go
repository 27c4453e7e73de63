package isolation

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/gh100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// hopperWard is a ward whose attacker has a GH100, and so has a second bystander, which copies.
type hopperWard struct {
	*Ward
	*gh100.Driver                  // the attacker's
	t             require.TestingT // that runs
	neighbour     *rig.Copier
	s             *gh100.Space
	ch            *gh100.Channel
	loot, mine    uint64 // where the attacker has RAM, and VRAM for entries of its own, a big page of each
	ram           []byte // at loot
}

func newHopperWard(t testing.TB, c options.Combination, cfg testserver.SharedConfig) *hopperWard {
	cfg.Card.VRAM = 9 << 30
	h := &hopperWard{Ward: newWard(t, c, cfg, rig.Hopper, 3), t: t}
	t.Cleanup(func() { _ = h.Close() })
	var err error
	h.neighbour, err = rig.NewCopier(rig.Hopper, h.GPUs[2].Socket, h.client(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.neighbour.Close() })
	h.machine, err = guest.Plug(t.Context(), h.Endpoint.Socket, h.client())
	require.NoError(t, err)
	return h
}

// restart resets the attacker's GPU and makes a space, with a channel that can copy.
func (h *hopperWard) restart() {
	require.NoError(h.t, h.machine.Reset())
	h.Driver = rig.NewHopper(h.machine)
	gaveUp := h.Fail
	h.Fail = func(why ...any) { require.Empty(h.t, append(why, h.Violations()), "after a reset") }
	defer func() { h.Fail = gaveUp }()
	h.Boot()
	h.s = h.NewSpace()
	const n = 64 << 10
	var addr uint64
	addr, h.ram = h.AllocRAM(n)
	h.loot, h.mine = h.s.Map(gh100.RAM, addr, n), h.s.Map(gh100.VRAM, h.AllocVRAM(n), n)
	h.ch = h.s.NewChannel(1, gh100.Graphics)
}

// use copies from an address, or to it.
func (h *hopperWard) use(va uint64, write bool) {
	dst, src := h.loot, va
	if write {
		dst, src = src, dst
	}
	_ = h.ch.Until(h.ch.Submit(gh100.Copy(dst, src, 4096)...))
}

// touch reads or writes a window.
func (h *hopperWard) touch(bar int, off uint64, write bool) {
	p := bytes.Repeat([]byte{0x11}, 4096)
	if write {
		h.Bus.WriteBAR(bar, off, p)
	}
	h.Bus.ReadBAR(bar, off, p)
	h.look(fmt.Sprintf("read of BAR%d", bar), p)
}

// hopperAction is a case with what it is given.
type hopperAction struct {
	kind     int
	at, word uint64
	write    bool
}

// draw draws what an attacker does: any case at any place, with entries that are nearly right.
func (h *hopperWard) draw() *rapid.Generator[[]hopperAction] {
	at := rapid.OneOf(rapid.SampledFrom(h.places()), rapid.Map(rapid.Uint64(), func(v uint64) uint64 { return v &^ 0xfff }))
	bits := rapid.OneOf(rapid.Just(uint64(0)), rapid.Map(rapid.IntRange(0, 63), func(b int) uint64 { return 1 << b }), rapid.Uint64())
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) hopperAction {
		a := hopperAction{rapid.IntRange(0, len(hopperCases)-1).Draw(t, "case"), at.Draw(t, "place"), 0, rapid.Bool().Draw(t, "write")}
		a.word = rapid.SampledFrom(words(a.at)).Draw(t, "word") ^ bits.Draw(t, "bits")
		return a
	}), 1, 20)
}

// attack does what a list says. What the attacker's driver gives up is no finding.
func (h *hopperWard) attack(t require.TestingT, list []hopperAction) {
	h.t = t
	h.restart()
	for _, a := range list {
		h.Timeout = time.Second / 2 // of what its own attacks may have broken
		func() {
			defer func() {
				if p := recover(); p != nil {
					_ = p.(rig.GaveUp)
					h.restart()
				}
			}()
			hopperCases[a.kind].do(h, a.at, a.word, a.write)
			if h.ch.Err() != nil {
				h.restart()
			}
		}()
	}
	require.NoError(t, h.machine.Sync(), "the server dropped the guest")
	require.Empty(t, h.Violations(), "after %+v", list)
	require.NoError(t, h.neighbour.Copy())
}

// TestHopperGate is TestGate for an attacker with a GH100. A victim with a GF100 and a neighbour with a GH100
// copy on. Each case meets each place in the gate or with five of the combinations of the release suite.
func TestHopperGate(t *testing.T) {
	for n, c := range scale.Of([]options.Combination{options.Mapped}, options.Few()) {
		t.Run(c.String(), func(t *testing.T) {
			h := newHopperWard(t, c, testserver.SharedConfig{})
			before := h.Copies()
			for i, k := range hopperCases {
				for j, at := range h.places() {
					if (i+j+n)%scale.Of(2, 4) == 0 {
						var list []hopperAction
						for n, word := range words(at)[:k.words] {
							list = append(list, hopperAction{i, at, word, n%2 == 0})
						}
						t.Run(fmt.Sprintf("%s at %#x", k.name, at), func(t *testing.T) { h.attack(t, list) })
					}
				}
			}
			for i := range random {
				h.attack(t, h.draw().Example(n*random+i))
			}
			require.Eventually(t, func() bool { return h.Copies() > before }, wait, tick)
			h.restart()
			h.use(h.mine, true)
			require.NoError(t, h.ch.Err())
		})
	}
}

func FuzzHopperGate(f *testing.F) {
	h := newHopperWard(f, options.Mapped, testserver.SharedConfig{})
	addSeeds(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { h.attack(t, h.draw().Draw(t, "actions")) }))
}

// TestHopperGateFindsHoles plants two holes in the card: a window, and a translation, that reach others'
// memory.
func TestHopperGateFindsHoles(t *testing.T) {
	s := &shifted{}
	h := newHopperWard(t, options.Oracle, testserver.SharedConfig{Plant: func(c *soft.Card) card.Registers { s.Card = c; return s }})
	h.restart()
	require.Empty(t, h.Violations())
	s.to.Store(h.free[0].Addr)
	s.from.Store(h.Endpoint.Guest.Extents()[0].Card)
	h.Write32(0x10fd40, 0)
	h.touch(0, 0x700000, true)
	s.from.Store(0)
	require.Contains(t, strings.Join(h.Violations(), "; "), "unowned memory changed")

	u := &unbounded{format: shadowpt.Hopper, kind: strangeKind & 0xf}
	h = newHopperWard(t, options.Mapped, testserver.SharedConfig{Plant: func(c *soft.Card) card.Registers { u.Card = c; return u }})
	h.restart()
	u.tables = h.Endpoint.Guest.Tables()
	u.target.Store(h.bystander.Extents()[0].Card)
	hopperCases[0].do(h, 0, shadowpt.Hopper.EncodePTE(shadowpt.PTE{Valid: true, Addr: 1 << 21, Kind: u.kind}), false)
	found := strings.Join(h.Violations(), "; ")
	require.Contains(t, found, "do not belong to it")
	require.Contains(t, found, "secret in what was copied to RAM")
}
