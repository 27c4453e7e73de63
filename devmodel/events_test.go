package devmodel_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

func rd(v *devmodel.VGPU, off uint64) uint32 {
	var b [4]byte
	v.ReadBAR(devmodel.BAR0, off, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func wr(v *devmodel.VGPU, off uint64, x uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], x)
	v.WriteBAR(devmodel.BAR0, off, b[:])
}

// enableInterrupts does what a driver does.
func enableInterrupts(v *devmodel.VGPU) {
	wr(v, 0x2140, ^uint32(0))
	wr(v, 0x2628, 1)
	for i := range uint64(gf100.PBDMAs) {
		wr(v, 0x4010c+i*0x2000, 0xfffffeff)
	}
	wr(v, 0x140, 1)
}

func TestEngineEventRaisesTheInterrupt(t *testing.T) {
	v, _, h := newGPU(t)
	enableInterrupts(v)
	require.False(t, h.line.Level)
	v.EngineEvent(1<<gf100.EngineGR | 1<<gf100.EngineCE1)
	require.True(t, h.line.Level)
	require.Equal(t, uint32(1<<gf100.EngineGR|1<<gf100.EngineCE1), rd(v, 0x25a4))
	wr(v, 0x25a8, 1)
	require.True(t, h.line.Level, "the other engine's event is still there")
	wr(v, 0x25a8+4*gf100.EngineCE1, 1)
	require.False(t, h.line.Level)
	require.Equal(t, 1, h.edges)
}

func TestMMUFaultIsShownAndKept(t *testing.T) {
	v, _, h := newGPU(t)
	enableInterrupts(v)
	first := gf100.MMUFault{Unit: 0x15, Inst: 0x123000, VA: 0x10_2345_6000, Info: 0xc3}
	v.MMUFault(first)
	v.MMUFault(gf100.MMUFault{Unit: 0x15, Inst: 0x999000, VA: 1})
	require.True(t, h.line.Level)
	require.Equal(t, uint32(1<<0x15), rd(v, 0x259c))
	require.Equal(t, uint32(0x123), rd(v, 0x2800+0x150))
	require.Equal(t, uint32(0x23456000), rd(v, 0x2804+0x150))
	require.Equal(t, uint32(0x10), rd(v, 0x2808+0x150))
	require.Equal(t, uint32(0xc3), rd(v, 0x280c+0x150))
	wr(v, 0x259c, 1<<0x15)
	require.False(t, h.line.Level)
}

// TestPBDMAErrorsQueue gives a guest more errors than it has PBDMAs: each is
// shown once, and each channel goes on when its own is acknowledged.
func TestPBDMAErrorsQueue(t *testing.T) {
	v, c, _ := newGPU(t)
	enableInterrupts(v)
	for ch := range uint8(5) {
		v.PBDMAError(gf100.PBDMAError{PBDMA: 1, Channel: ch, Intr: gf100.PBDMAIntrMethod, Method: 0x100 + uint32(ch), Data: uint32(ch)})
	}
	seen := map[uint32]bool{}
	for range 5 {
		mask := rd(v, 0x25a0)
		require.NotZero(t, mask)
		for i := range uint64(gf100.PBDMAs) {
			if mask>>i&1 == 0 {
				continue
			}
			base := 0x40000 + i*0x2000
			ch := rd(v, base+0x120)
			require.Equal(t, ch, rd(v, base+0xc4))
			require.False(t, seen[ch])
			seen[ch] = true
			wr(v, base+0x108, gf100.PBDMAIntrMethod)
			break
		}
	}
	require.Len(t, seen, 5)
	require.Len(t, c.resumed, 5)
	require.Zero(t, rd(v, 0x25a0))
}

func TestRunlistDone(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	wr(v, 0x2270, 0x30000123)
	wr(v, 0x2274, 0x01f00002)
	require.Equal(t, [2]uint32{0x30000123, 0x01f00002}, c.runlist)
	c.runlistPending = true
	require.NotZero(t, rd(v, 0x227c)&(1<<20))
	c.runlistPending = false
	v.Done(true)
	require.Zero(t, rd(v, 0x227c)&(1<<20))
	require.True(t, h.line.Level)
	wr(v, 0x2a00, 1<<28)
	require.False(t, h.line.Level)
}

func TestDoorbellAndUSERD(t *testing.T) {
	v, c, _ := newGPU(t)
	const base = 0x40000 // of the poll area in BAR1
	wr(v, 0x2254, 1<<28|base>>12)
	put := make([]byte, 4)
	v.WriteBAR(devmodel.BAR1, base+7*gf100.USERDSize+gf100.USERDGPPut, put)
	v.WriteBAR(devmodel.BAR1, base+8*gf100.USERDSize+gf100.USERDGPGet, put)
	v.WriteBAR(devmodel.BAR1, base-4, put)
	require.Equal(t, []uint8{7}, c.bells)
	v.ReadBAR(devmodel.BAR1, base+9*gf100.USERDSize+gf100.USERDGPGet, put)
	v.ReadBAR(devmodel.BAR1, base+gf100.Channels*gf100.USERDSize, put)
	require.Equal(t, []uint8{9}, c.refreshed)
}

func TestWindowFaultIsTheGuestsOwn(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	c.fault = &gf100.MMUFault{Unit: 4, VA: 0x5000, Info: 0x42}
	v.ReadBAR(devmodel.BAR1, 0x5000, make([]byte, 4))
	require.True(t, h.line.Level)
	require.Equal(t, uint32(1<<4), rd(v, 0x259c))
}

func TestResetForgets(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	v.EngineEvent(1)
	v.PBDMAError(gf100.PBDMAError{Channel: 3, Intr: 1})
	require.NoError(t, v.Reset())
	require.Contains(t, c.calls, "Reset")
	require.False(t, h.line.Level)
	require.Zero(t, rd(v, 0x25a4))
	require.Zero(t, rd(v, 0x25a0))
}
