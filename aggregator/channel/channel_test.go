package channel

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
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
