package mmio

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStateHoldsWhatDiffers(t *testing.T) {
	s := smallSpace(t)
	require.Equal(t, State{Version: 1, Size: 4 * pageSize, Values: []Value{}}, s.State())
	s.Write32(0x100, 1)           // W1C, reset f
	s.Write32(0x104, 0x77)        // a hole
	s.Write32(0x1428, 5)          // an instance
	s.Write(0x211, []byte{9})     // a hole next to narrow registers
	s.Write32(0x2000, 1)          // a hole in a page without rows
	s.Write32(0x3000, 0xffffffff) // an aperture: not ours
	s.Write32(0x200, 0)           // a write that leaves the reset value
	text, err := json.Marshal(s.State())
	require.NoError(t, err)
	require.JSONEq(t, `{"version": 1, "size": 16384, "values": [
		{"name": "NV_PMC_INTR_0", "offset": 256, "value": 14},
		{"offset": 260, "value": 119},
		{"name": "NV_PMC_DEBUG", "offset": 528, "value": 305400064},
		{"name": "NV_PTIMER_ALARM[1]", "offset": 5160, "value": 5},
		{"offset": 8192, "value": 1}]}`, string(text))
	s.Reset()
	require.Empty(t, s.State().Values)
}

func TestSetStateRefuses(t *testing.T) {
	state := func(v ...Value) State { return State{Version: 1, Size: 4 * pageSize, Values: v} }
	for _, c := range []struct {
		name string
		st   State
		want string
	}{
		{"version", State{Version: 2, Size: 4 * pageSize}, "version 2"},
		{"no version", State{Size: 4 * pageSize}, "version 0"},
		{"size", State{Version: 1, Size: pageSize}, "0x1000"},
		{"outside", state(Value{Offset: 4 * pageSize}), "0x004000"},
		{"in mid-dword", state(Value{Offset: 0x102}), "0x000102"},
		{"in an aperture", state(Value{Offset: 0x3000}), "PRAMIN"},
		{"order", state(Value{Offset: 0x108}, Value{Offset: 0x104}), "0x000104"},
		{"twice", state(Value{Offset: 0x104}, Value{Offset: 0x104}), "0x000104"},
		{"a hole with a name", state(Value{Name: "NV_PMC_INTR_1", Offset: 0x104}), "NV_PMC_INTR_1"},
		{"a register without", state(Value{Offset: 0x100}), "NV_PMC_INTR_0"},
		{"another instance", state(Value{Name: "NV_PTIMER_ALARM[2]", Offset: 0x1428}), "NV_PTIMER_ALARM[1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := smallSpace(t)
			s.Write32(0x104, 5)
			before := s.State()
			require.ErrorContains(t, s.SetState(c.st), c.want)
			require.Equal(t, before, s.State(), "a refused state changed something")
		})
	}
}

// A fresh space with another's state answers every read as the other does, and continues as
// it does.
func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		regs, apertures := drawTable(t)
		a, b := newPair(t, regs, apertures), newPair(t, regs, apertures)
		offset := rapid.IntRange(0, twinSize-8)
		for _, p := range []*pair{a, b} { // b gets another history
			for range rapid.IntRange(0, 40).Draw(t, "accesses") {
				off, v := uint32(offset.Draw(t, "offset")), rapid.Uint32().Draw(t, "value")
				p.space.Write32(off, v)
				p.space.Read32(uint32(offset.Draw(t, "offset")))
			}
		}
		text, err := json.Marshal(a.space.State())
		require.NoError(t, err)
		var st State
		require.NoError(t, json.Unmarshal(text, &st))
		require.NoError(t, b.space.SetState(st))
		require.Equal(t, a.space.State(), b.space.State())
		for off := uint32(0); off < twinSize; off += 4 {
			if got, want := b.space.Read32(off), a.space.Read32(off); got != want {
				require.Equal(t, want, got, "dword at %#x", off)
			}
		}
	})
}
