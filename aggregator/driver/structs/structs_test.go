package structs

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestWordsAreReadBack: the next bind reads what the card saved of a channel and what it reported,
// and nothing else of the instance block and of USERD has changed.
func TestWordsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), gf100.InstanceSize, gf100.InstanceSize).Draw(t, "block or page")
		n := rapid.Uint64()
		in := ReadInstance(b)
		in.State = card.State{GPGet: rapid.Uint32().Draw(t, "get"), Ref: rapid.Uint32().Draw(t, "ref"), Token: n.Draw(t, "token")}
		for _, w := range SavedWords(in.State) {
			binary.LittleEndian.PutUint32(b[w.Offset:], w.Value)
		}
		require.Equal(t, in, ReadInstance(b))
		require.Equal(t, in.Space, ReadSpace(b))

		_, put := ReadUSERD(b)
		p := card.Progress{Get: n.Draw(t, "get"), TopLevelGet: n.Draw(t, "top level"), Ref: in.State.Ref, GPGet: in.State.GPGet}
		for _, w := range ProgressWords(p) {
			binary.LittleEndian.PutUint32(b[w.Offset:], w.Value)
		}
		got, after := ReadUSERD(b)
		require.Equal(t, p, got)
		require.Equal(t, []uint32{put, put}, []uint32{after, binary.LittleEndian.Uint32(b[gf100.USERDGPPut:])})
	})
}

// TestFaultsAreReadBack: a guest reads what the card of the same chip reported, and names the engines and
// the program that did it.
func TestFaultsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := card.Fault{
			Kind: card.Kind(rapid.IntRange(0, int(card.Broken)-1).Draw(t, "kind")), Engine: card.Engine(rapid.IntRange(0, 2).Draw(t, "engine")),
			Subchannel: uint8(rapid.IntRange(0, 7).Draw(t, "subchannel")), Method: rapid.Uint32Range(0, 0x1fff).Draw(t, "method") &^ 3, Data: rapid.Uint32().Draw(t, "data"),
		}
		code := rapid.Uint32Min(2).Draw(t, "code")
		var back card.Fault
		switch {
		case f.Kind.From() == card.MMU:
			f = card.Fault{Engine: f.Engine, VA: rapid.Uint64().Draw(t, "va"), Write: rapid.Bool().Draw(t, "write"), Reason: shadowpt.PageReadOnly}
			f.Program = f.Engine == card.Graphics && rapid.Bool().Draw(t, "program")
			back = ReadMMUFault(MMUFault(f, 0x1000))
		case f.Kind.From() == card.Reader:
			f.Engine = card.NoEngine
			e := PBDMAError(f, 3)
			back = ReadPBDMAError(e)
		case f.Engine == card.Graphics:
			f.Class = 0x9097
			if f.Kind == card.BadData || f.Kind == card.ProgramError {
				f.Code = uint64(code)
			}
			back = ReadGraphTrap(GraphTrap(f, 0x1000))
		default:
			if f.Kind = card.BadMethod; code%2 == 0 {
				f.Kind, f.Code = card.BadData, uint64(code)
			}
			back = ReadCopyTrap(CopyTrap(f, 0x1000))
		}
		require.Equal(t, f, back)
		engines := card.EngineSet(rapid.Uint32Range(0, 7).Draw(t, "engines"))
		require.Equal(t, engines, EngineSet(Bits(engines)))
	})
}
