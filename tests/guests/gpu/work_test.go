package gpu

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

func TestContexts(t *testing.T) {
	g := fake(t, "6.12")
	res, err := g.env().Contexts(proto.ContextsArgs{Count: 5})
	require.NoError(t, err)
	require.Positive(t, res.CreateNS)
	require.Positive(t, res.DestroyNS)
	require.Len(t, g.channels, 5)

	g.forgets = true
	_, err = g.env().Contexts(proto.ContextsArgs{Count: 2})
	require.ErrorContains(t, err, "context 0: at 0x0 of a buffer is 0xfffffffe, the GPU should have written 0x1")
}

func TestTables(t *testing.T) {
	g := fake(t, "6.12")
	res, err := g.env().Tables(proto.TablesArgs{Buffers: 100, Bytes: 8192})
	require.NoError(t, err)
	require.Equal(t, 200, res.Entries)
	require.Positive(t, res.MapNS+res.UseNS+res.UnmapNS)

	g.forgets = true
	_, err = g.env().Tables(proto.TablesArgs{Buffers: 2, Bytes: 4096})
	require.ErrorContains(t, err, "buffer 0: at 0x0 of a buffer")
	for _, a := range []proto.TablesArgs{{}, {Buffers: 1, Bytes: 100}, {Buffers: 5000, Bytes: 4096}, {Buffers: 4096, Bytes: 1 << 63}} {
		_, err = g.env().Tables(a)
		require.ErrorContains(t, err, "want 1 to 4096, of whole pages")
	}
}

func TestBandwidth(t *testing.T) {
	e := fake(t, "6.12").env()
	res, err := e.Bandwidth(proto.BandwidthArgs{Rounds: 3})
	require.NoError(t, err)
	require.Len(t, res.Windows, 1)
	require.Equal(t, []string{"bar3: no way to map it"}, res.Skipped)

	// A window that shows pages 5 and 6, and 9 to 14.
	bar := make([]uint32, bar3Looked/4)
	for _, page := range []int{5, 6, 9, 10, 11, 12, 13, 14} {
		bar[page*1024+512] = uint32(page)
	}
	held := slices.Clone(bar)
	gone := 0
	e.BAR = func(_ string, index, size int) ([]uint32, func(), error) {
		require.Equal(t, 3, index)
		return bar[:size/4], func() { gone++ }, nil
	}
	res, err = e.Bandwidth(proto.BandwidthArgs{Rounds: 5, Bytes: 16 << 10})
	require.NoError(t, err)
	require.Empty(t, res.Skipped)
	require.Equal(t, 1, gone)
	require.Equal(t, []string{"bar1", "bar3"}, []string{res.Windows[0].Window, res.Windows[1].Window})
	for _, w := range res.Windows {
		require.GreaterOrEqual(t, w.Rounds, 3)
		for _, v := range []float64{w.ReadBps, w.WriteBps, w.RAMReadBps, w.RAMWriteBps, w.ReadToRAM, w.WriteToRAM} {
			require.Positive(t, v)
		}
	}
	require.Equal(t, held, bar, "what was there is there")
	require.Equal(t, 16<<10, res.Windows[1].Bytes)

	// Six pages are all there is.
	res, err = e.Bandwidth(proto.BandwidthArgs{Rounds: 3, Bytes: 32 << 10})
	require.NoError(t, err)
	require.Equal(t, []int{32 << 10, 24 << 10}, []int{res.Windows[0].Bytes, res.Windows[1].Bytes})
	clear(bar)
	res, err = e.Bandwidth(proto.BandwidthArgs{Rounds: 3})
	require.NoError(t, err)
	require.Equal(t, []string{"bar3: nothing of its first 16 MiB is shown"}, res.Skipped)
	e.BAR = func(string, int, int) ([]uint32, func(), error) { return nil, nil, errors.New("claimed") }
	res, err = e.Bandwidth(proto.BandwidthArgs{Rounds: 3})
	require.NoError(t, err)
	require.Equal(t, []string{"bar3: claimed"}, res.Skipped)
	_, err = e.Bandwidth(proto.BandwidthArgs{Bytes: 100})
	require.ErrorContains(t, err, "whole pages")
}

func TestBells(t *testing.T) {
	g := fake(t, "6.12")
	e := g.env()
	b, err := e.OpenBells(proto.NodeArgs{})
	require.NoError(t, err)
	require.EqualValues(t, 1, b.done, "it has run something")
	res, err := b.Ring(proto.BellsArgs{How: proto.BellLaunch, Count: 20})
	require.NoError(t, err)
	require.EqualValues(t, 21, b.done)
	require.Equal(t, 20, res.Count)
	require.Positive(t, res.P50NS)
	require.GreaterOrEqual(t, res.WorkP50NS, res.P50NS)
	res, err = b.Ring(proto.BellsArgs{How: proto.BellBehind, Count: 2*slots + 1})
	require.NoError(t, err)
	require.Equal(t, 2*slots, res.Count)
	require.EqualValues(t, 21+2*slots, b.done)

	_, err = b.Ring(proto.BellsArgs{How: proto.BellStore, Count: 5})
	require.EqualError(t, err, "no way to map the poll area")
	page, gone := make([]uint32, 1024), 0
	page[userdGPPut/4] = 7
	held := slices.Clone(page)
	e.USERD = func(_ string, channel int) ([]uint32, func(), error) {
		require.Zero(t, channel)
		return page, func() { gone++ }, nil
	}
	for n, made := range map[int]int{1: 11, 20: 20, 100: 100} {
		res, err = b.Ring(proto.BellsArgs{How: proto.BellStore, Count: n})
		require.NoError(t, err)
		require.Equal(t, made, res.Count)
	}
	require.Equal(t, held, page, "what is stored is what was there")
	require.Equal(t, 3, gone)

	for _, a := range []proto.BellsArgs{{How: proto.BellStore}, {How: proto.BellLaunch, Count: maxBells + 1}} {
		_, err = b.Ring(a)
		require.ErrorContains(t, err, "doorbells: want 1 to 100000")
	}
	_, err = b.Ring(proto.BellsArgs{How: "bell", Count: 1})
	require.EqualError(t, err, `a doorbell rung by "bell": want store, launch or behind`)

	g.forgets, b.limit = true, 50*time.Millisecond
	_, err = b.Ring(proto.BellsArgs{How: proto.BellLaunch, Count: 1})
	require.EqualError(t, err, fmt.Sprintf("the semaphore stays at %d of %d", b.done-1, b.done))
	require.NoError(t, b.Close())
}
