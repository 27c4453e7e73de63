package devmodel_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

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

// enableInterrupts enables them as a driver does.
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

func TestMMUFaultIsShownUntilCleared(t *testing.T) {
	v, _, h := newGPU(t)
	enableInterrupts(v)
	first := gf100.MMUFault{Unit: 0x15, Inst: 0x123000, VA: 0x10_2345_6000, Info: 0xc3}
	v.MMUFault(3, first)
	v.MMUFault(4, gf100.MMUFault{Unit: 0x15, Inst: 0x999000, VA: 1})
	require.True(t, h.line.Level)
	require.Equal(t, uint32(1<<0x15), rd(v, 0x259c))
	require.Equal(t, uint32(0x123), rd(v, 0x2800+0x150))
	require.Equal(t, uint32(0x23456000), rd(v, 0x2804+0x150))
	require.Equal(t, uint32(0x10), rd(v, 0x2808+0x150))
	require.Equal(t, uint32(0xc3), rd(v, 0x280c+0x150))
	wr(v, 0x259c, 1<<0x15)
	require.True(t, h.line.Level, "the other channel's fault was waiting for the slot")
	require.Equal(t, uint32(0x999), rd(v, 0x2800+0x150))
	v.MMUFault(5, gf100.MMUFault{Unit: 0x15, Inst: 0x555000})
	wr(v, 0x3000+5*8, 0) // unbound: its driver has done with it
	wr(v, 0x259c, 1<<0x15)
	require.False(t, h.line.Level)
}

// TestRefusedMethodsQueue gives PGRAPH two refused methods and a copy engine one: each is
// shown where drivers look, and each channel continues when its own engine is resumed.
func TestRefusedMethodsQueue(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	wr(v, 0x40013c, ^uint32(0))
	v.GraphTrap(7, gf100.GraphTrap{Intr: gf100.GraphIntrIllegalMthd, Inst: 0x7000, Subchannel: 2, Class: 0x9097, Method: 0x1234, Data: 77})
	v.GraphTrap(8, gf100.GraphTrap{Intr: gf100.GraphIntrIllegalClass, Inst: 0x8000, Data: 88})
	require.True(t, h.line.Level)
	require.Equal(t, uint32(1<<12), rd(v, 0x100))
	require.Equal(t, uint32(gf100.GraphIntrIllegalMthd), rd(v, 0x400100))
	require.Equal(t, uint32(2<<16|0x1234), rd(v, 0x400704))
	require.Equal(t, uint32(77), rd(v, 0x400708))
	require.Equal(t, uint32(0x9097), rd(v, 0x404208))
	require.Equal(t, uint32(7), rd(v, 0x409b00)&0xfffffff)
	wr(v, 0x400500, 0x00010001)
	require.Empty(t, c.resumed, "not acknowledged")
	wr(v, 0x400100, ^uint32(0))
	wr(v, 0x400500, 0x00010001)
	require.Equal(t, []uint8{7}, c.resumed)
	require.Equal(t, uint32(gf100.GraphIntrIllegalClass), rd(v, 0x400100))
	wr(v, 0x3000+8*8, 0)
	wr(v, 0x400100, ^uint32(0))
	wr(v, 0x400500, 0x00010001)
	require.Equal(t, []uint8{7}, c.resumed, "a channel that was bound again has no error")
	require.False(t, h.line.Level)

	c.resumed = nil
	wr(v, 0x105010, 1<<6)
	wr(v, 0x10501c, 1<<6)
	v.CopyTrap(9, gf100.CopyTrap{Engine: 1, Inst: 0x9000, Subchannel: 5, Method: 0x700, Data: 99, Status: 1})
	require.Equal(t, uint32(1<<6), rd(v, 0x100))
	require.Equal(t, uint32(5<<27|0x700<<14|1), rd(v, 0x105040))
	require.Equal(t, uint32(99), rd(v, 0x105044))
	wr(v, 0x105004, 1<<6)
	require.Equal(t, []uint8{9}, c.resumed)
	require.Zero(t, rd(v, 0x100))
}

// TestPFIFOResetEndsChannels switches PFIFO off as a driver does that finds it in
// use.
func TestPFIFOResetEndsChannels(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	wr(v, 0x200, ^uint32(0))
	wr(v, 0x3000+9*8, 0xc0000123)
	wr(v, 0x3004+9*8, 1)
	v.EngineEvent(1)
	require.True(t, h.line.Level)
	wr(v, 0x200, ^uint32(gf100.EnablePFIFO))
	require.Zero(t, c.bound[9])
	require.False(t, c.enabled[9])
	require.Zero(t, rd(v, 0x3000+9*8))
	require.Zero(t, rd(v, 0x2140))
	require.False(t, h.line.Level)
}

// TestPBDMAErrorsQueue gives a guest more errors than it has PBDMAs: each is shown once,
// and each channel continues when its own is acknowledged.
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
			wr(v, base+0xc0, passOver)
			wr(v, base+0x108, gf100.PBDMAIntrMethod)
			break
		}
	}
	require.Len(t, seen, 5)
	require.Len(t, c.resumed, 5)
	require.Zero(t, rd(v, 0x25a0))
}

// passOver is the word that drivers write over a method to skip it.
const passOver = 0x80600008

// TestPBDMAMethodIsTriedAgain: a method that is acknowledged and not skipped is retried; an
// invalid word is not.
func TestPBDMAMethodIsTriedAgain(t *testing.T) {
	v, c, _ := newGPU(t)
	enableInterrupts(v)
	for i, x := range []struct {
		intr, method   uint32
		retry, clearly bool
	}{
		{gf100.PBDMAIntrMethod, 0, true, false},
		{gf100.PBDMAIntrEmptySubch, 0x1234, true, true},
		{gf100.PBDMAIntrSemaphore, passOver, false, true},
		{gf100.PBDMAIntrPBEntry, 0, false, false},
		{gf100.PBDMAIntrMethod, 0, true, false}, // the bit of before is not this one's
	} {
		c.resumed, c.retried = nil, nil
		v.PBDMAError(gf100.PBDMAError{Channel: uint8(i), Intr: x.intr, Method: 0x20100})
		if x.clearly {
			wr(v, 0x400c0, x.method)
		}
		wr(v, 0x40108, x.intr)
		want := [2][]uint8{{uint8(i)}, nil}
		if x.retry {
			want = [2][]uint8{nil, {uint8(i)}}
		}
		require.Equal(t, want, [2][]uint8{c.resumed, c.retried}, "%d", i)
		wr(v, 0x400c0, passOver) // nothing is held: it means nothing
	}
}

// TestScheduling: PFIFO off, its runlist kept from being scheduled, or PFIFO
// reset: no channel may run.
func TestScheduling(t *testing.T) {
	v, c, _ := newGPU(t)
	require.Contains(t, c.calls, "Schedule", "PFIFO is off at power on")
	require.False(t, c.scheduled)
	wr(v, 0x2200, 1)
	require.True(t, c.scheduled)
	wr(v, 0x2630, 2)
	require.True(t, c.scheduled, "another runlist")
	wr(v, 0x2630, 3)
	require.False(t, c.scheduled)
	wr(v, 0x2630, 0)
	require.True(t, c.scheduled)
	wr(v, 0x200, ^uint32(0))
	wr(v, 0x200, ^uint32(gf100.EnablePFIFO))
	require.False(t, c.scheduled)
	wr(v, 0x2200, 1)
	require.NoError(t, v.Reset())
	require.False(t, c.scheduled)
}

func TestFaultTrigger(t *testing.T) {
	v, c, _ := newGPU(t)
	wr(v, 0x2a30+4*gf100.EngineCE0, 0x100|gf100.EngineCE0)
	wr(v, 0x2a30, 0xff)
	require.Equal(t, []int{gf100.EngineCE0}, c.triggered)
	require.Equal(t, uint32(0x100|gf100.EngineCE0), rd(v, 0x2a30+4*gf100.EngineCE0), "until the driver clears it")
}

// TestPBDMAErrorsOfReboundChannels: binding a channel again ends its error, and the PBDMA
// that showed it is free for those that wait.
func TestPBDMAErrorsOfReboundChannels(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	for ch := range uint8(4) {
		v.PBDMAError(gf100.PBDMAError{PBDMA: ch, Channel: ch, Intr: gf100.PBDMAIntrMethod, Data: uint32(ch)})
	}
	require.Equal(t, uint32(7), rd(v, 0x25a0))
	wr(v, 0x3000, 0) // channel 0, whose error PBDMA 0 shows
	wr(v, 0x40108, gf100.PBDMAIntrMethod)
	require.Empty(t, c.resumed)
	require.Equal(t, uint32(7), rd(v, 0x25a0), "the fourth error waited for a PBDMA")
	require.Equal(t, uint32(3), rd(v, 0x400c4))
	for i := range uint64(gf100.PBDMAs) {
		wr(v, 0x400c0+i*0x2000, passOver)
		wr(v, 0x40108+i*0x2000, gf100.PBDMAIntrMethod)
	}
	require.ElementsMatch(t, []uint8{1, 2, 3}, c.resumed)
	require.False(t, h.line.Level)
}

func TestBindError(t *testing.T) {
	v, _, h := newGPU(t)
	enableInterrupts(v)
	v.BindError()
	require.True(t, h.line.Level)
	require.Equal(t, uint32(gf100.IntrBind), rd(v, 0x2100))
	require.Equal(t, uint32(gf100.BindInvalid), rd(v, 0x252c))
	wr(v, 0x2100, gf100.IntrBind)
	require.False(t, h.line.Level)
}

func TestRunlistError(t *testing.T) {
	v, _, h := newGPU(t)
	enableInterrupts(v)
	v.RunlistError()
	require.True(t, h.line.Level)
	require.Equal(t, uint32(gf100.IntrSched), rd(v, 0x2100))
	require.Equal(t, uint32(gf100.SchedRunlistData), rd(v, 0x254c))
	wr(v, 0x2100, gf100.IntrSched)
	require.False(t, h.line.Level)
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

func TestInvalidate(t *testing.T) {
	v, c, _ := newGPU(t)
	wr(v, 0x100cb8, 0x1234560)
	wr(v, 0x100cbc, 0x80000001)
	require.Equal(t, [2]uint32{0x1234560, 0x80000001}, c.invalidated)
}

func TestDoorbellAndUSERD(t *testing.T) {
	v, c, _ := newGPU(t)
	const base = 0x40000 // of the poll area in BAR1
	wr(v, 0x2254, 1<<28|base>>12)
	put := make([]byte, 4)
	v.WriteBAR(devmodel.BAR1, base+7*gf100.USERDSize+gf100.USERDGPPut, put)
	v.WriteBAR(devmodel.BAR1, base+8*gf100.USERDSize+gf100.USERDGPGet, put)
	v.WriteBAR(devmodel.BAR1, base-4, put)
	require.Equal(t, []uint8{7}, c.doorbells)
	v.ReadBAR(devmodel.BAR1, base+9*gf100.USERDSize+gf100.USERDGPGet, put)
	v.ReadBAR(devmodel.BAR1, base+gf100.Channels*gf100.USERDSize, put)
	require.Equal(t, []uint8{9}, c.refreshed)
}

func TestBARFaultReachesGuest(t *testing.T) {
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
	v.GraphTrap(7, gf100.GraphTrap{Intr: gf100.GraphIntrIllegalMthd})
	require.NoError(t, v.Reset())
	reset := slices.Index(c.calls, "Reset")
	require.GreaterOrEqual(t, reset, 0)
	require.Equal(t, []string{"SetBlock", "SetBlock"}, c.calls[reset-2:reset], "BAR1 and BAR3 show no tables")
	for _, window := range []string{"SetPRAMIN", "SetPollArea"} { // they show what the registers say
		require.Contains(t, c.calls[reset:], window)
	}
	require.False(t, h.line.Level)
	require.Zero(t, rd(v, 0x25a4))
	require.Zero(t, rd(v, 0x25a0))
	require.Zero(t, rd(v, 0x400100))
	v.GraphTrap(8, gf100.GraphTrap{Intr: gf100.GraphIntrIllegalMthd})
	require.NotZero(t, rd(v, 0x400100), "no refused method of before hides it")
}

// TestTimerPanics: a panic in the goroutine of a virtual GPU's timer quarantines its guest.
func TestTimerPanics(t *testing.T) {
	v, c, _ := newGPU(t)
	wr(v, 0x9140, 1)                      // NV_PTIMER_INTR_EN_0
	wr(v, 0x9420, uint32(c.Time())+1<<20) // NV_PTIMER_ALARM_0, a millisecond from now
	c.failing.Store(true)
	require.Eventually(t, func() bool { return c.quarantined.Load() != nil }, time.Minute, time.Millisecond)
	require.Equal(t, "the server failed in its timer: planted", c.quarantined.Load())
	c.failing.Store(false)
}
