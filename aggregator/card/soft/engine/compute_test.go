package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
)

// TestLaunch: a launch has what its methods said, whatever came before.
func TestLaunch(t *testing.T) {
	var g GR
	var got *sm.Launch
	env := newEnv(newTestMemory())
	env.Launched = func(l *sm.Launch) { got = l }
	rapid.Check(t, func(t *rapid.T) {
		word := func(name string, last uint32) uint32 { return rapid.Uint32Range(0, last).Draw(t, name) }
		block := [3]uint32{word("x", 15) + 1, word("y", 7) + 1, word("z", 7) + 1}
		want := sm.Launch{
			Region: 0x1234560000, Grid: [3]uint32{word("grid x", 0xffff), word("grid y", 0xffff), word("grid z", 0xffff)}, Block: block,
			ID: word("id", 1<<32-1), Param: word("param", 1<<32-1), Registers: word("registers", 32), Barriers: word("barriers", 16),
			Shared:   word("shared", 48<<10),
			LocalLow: word("local", 4096), LocalHigh: word("high", 4096),
			SharedWindow: uint64(word("shared window", 255)) << 24, LocalWindow: uint64(word("local window", 255)) << 24,
			Local: sm.Range{Address: 0x98_7654_3210, Size: 0x3_0000_1000},
		}
		start := word("start", 1<<32-1)
		want.Program = (want.Region + uint64(start)) & vaMask
		list := writes{
			{0x10f4, 0x111}, // unbind all
			{0x1608, 0x12}, {0x160c, 0x34560000}, {0x3b4, start},
			{0x238, want.Grid[1]<<16 | want.Grid[0]}, {0x23c, want.Grid[2]}, {0x3ac, block[1]<<16 | block[0]}, {0x3b0, block[2]},
			{0x250, block[0] * block[1] * block[2]}, {0x780, want.ID}, {0x2c0, want.Registers}, {0x254, want.Barriers},
			{0x24c, want.Shared}, {0x204, want.LocalLow}, {0x208, want.LocalHigh},
			{0x214, uint32(want.SharedWindow)}, {0x77c, uint32(want.LocalWindow)},
			{0x790, 0x98}, {0x794, 0x76543210}, {0x798, 3}, {0x79c, 0x1000},
			{0x1574, 1}, {0x1578, 0x20000}, {0x157c, 100}, {0x155c, 2}, {0x1560, 0x30000}, {0x1564, 200},
		}
		want.Textures.Headers, want.Textures.Samplers = sm.Pool{Address: 0x1_0002_0000, Last: 100}, sm.Pool{Address: 0x2_0003_0000, Last: 200}
		for range 5 {
			i, bound := word("index", 255), rapid.Bool().Draw(t, "bound")
			id := word("descriptor", 0x1fff)
			want.Textures.HeaderSlots[i] = sm.Slot{Index: id, Bound: bound}
			want.Textures.SamplerSlots[i] = sm.Slot{Index: id / 2, Bound: bound}
			bank, size := i%sm.ConstantBanks, word("size", 0x10000)
			want.Constants[bank] = sm.Constants{Range: sm.Range{Address: 0x5_0000_0000 + uint64(id), Size: uint64(size)}, Bound: bound}
			list = append(list, writes{
				{0x22c, id<<9 | i<<1 | bit(bound)}, {0x228, id/2<<12 | i<<4 | bit(bound)},
				{0x2380, size}, {0x2384, 5}, {0x2388, id}, {0x1694, bank<<8 | bit(bound)},
			}...)
		}
		for i := range want.Surfaces {
			s := &want.Surfaces[i]
			*s = sm.Surface{
				Address: 0x7_0000_0000 + uint64(i), Width: word("width", 1<<32-1), Height: word("height", 1<<17-1), Linear: i%2 != 0,
				Format: uint8(word("format", 255)), Zeta: i%3 == 0,
				Log2Block: [2]uint8{0, uint8(word("block", 5))},
			}
			at := 0x2700 + uint32(i)*0x20
			list = append(list, writes{
				{at, 7}, {at + 4, uint32(i)}, {at + 8, s.Width}, {at + 12, s.Height | bit(s.Linear)<<20},
				{at + 16, bit(s.Zeta) | uint32(s.Format)<<4}, {at + 20, uint32(s.Log2Block[1]) << 4},
			}...)
		}
		got = nil
		g.send(t, env, 0x90c0, list)
		g.Method(env, 0x90c0, 0x368, want.Param) // there is no program
		g.Abort()
		require.Equal(t, &want, got)
	})
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// TestLaunchRefused: a launch that the processor cannot take is an error of the channel.
func TestLaunchRefused(t *testing.T) {
	ok := map[uint32]uint32{0x250: 1024, 0x3ac: 2<<16 | 512, 0x3b0: 1, 0x2c0: 32, 0x24c: 48 << 10}
	for name, c := range map[string]struct {
		change map[uint32]uint32
		want   Reason
	}{
		"the largest":            {nil, 0},
		"dimensions":             {map[uint32]uint32{0x250: 1023}, BlockMismatch},
		"no thread":              {map[uint32]uint32{0x250: 0, 0x3b0: 0}, NoWarps},
		"too many threads":       {map[uint32]uint32{0x250: 1056, 0x3ac: 2<<16 | 528}, NoWarps},
		"too deep":               {map[uint32]uint32{0x250: 65, 0x3ac: 1<<16 | 1, 0x3b0: 65}, NoWarps},
		"registers":              {map[uint32]uint32{0x2c0: 33}, NoRegisters},
		"more than an operand":   {map[uint32]uint32{0x2c0: 64, 0x250: 1, 0x3ac: 1<<16 | 1}, NoRegisters},
		"shared memory":          {map[uint32]uint32{0x24c: 48<<10 + 1}, NoShared},
		"local memory":           {map[uint32]uint32{0x204: 300 << 10, 0x208: 213 << 10, 0x798: 1}, NoLocal},
		"more than it was given": {map[uint32]uint32{0x204: 16, 0x79c: 1024*16 - 1}, NoLocal},
		"parts of 16 bytes":      {map[uint32]uint32{0x204: 17, 0x79c: 1024*32 - 1}, NoLocal},
	} {
		t.Run(name, func(t *testing.T) {
			var g GR
			env := newEnv(newTestMemory())
			for _, values := range []map[uint32]uint32{ok, c.change} {
				for m, v := range values {
					g.send(t, env, 0x90c0, writes{{m, v}})
				}
			}
			if c.want == 0 {
				require.Equal(t, Done, g.Method(env, 0x90c0, 0x368, 0x1000))
				return
			}
			require.Equal(t, Illegal, g.Method(env, 0x90c0, 0x368, 0x1000))
			require.Equal(t, Refusal{0x90c0, c.want, 0x368, 0x1000}, g.Refusal)
			require.NotZero(t, c.want.GRDataError())
		})
	}
}
