package fifo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// TestRefusedAgain: the report of a method that is refused again stays as it is when the channel
// fails at another.
func TestRefusedAgain(t *testing.T) {
	f := &FIFO{stats: new(Stats)}
	f.Listed.Add(1)
	ch := &Channel{ID: 1, fifo: f, state: ChannelState{Retry: true, Failed: gf100.PBDMAError{Method: 7}}}
	e, refused := f.Run(ch)
	require.True(t, refused)
	ch.state.Failed.Method = 8
	require.Equal(t, uint32(7), uint32(e.PBDMA.Method))
}
