package gf100_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/devmodel/gf100"
	chip "github.com/umbra-gpu/umbra/mmio/gf100"
)

func rd(v *gf100.VGPU, off uint64) uint32 {
	var b [4]byte
	v.ReadBAR(devmodel.BAR0, off, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func wr(v *gf100.VGPU, off uint64, x uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], x)
	v.WriteBAR(devmodel.BAR0, off, b[:])
}

// enableInterrupts enables them as a driver does.
func enableInterrupts(v *gf100.VGPU) {
	wr(v, 0x2140, ^uint32(0))
	wr(v, 0x2628, 1)
	for i := range uint64(chip.PBDMAs) {
		wr(v, 0x4010c+i*0x2000, 0xfffffeff)
	}
	wr(v, 0x140, 1)
}

// TestEventsInterrupt: the guest finds each event in its registers, and the interrupt is up until
// the guest has acknowledged it.
func TestEventsInterrupt(t *testing.T) {
	type registers map[uint64]uint32
	fault := chip.MMUFault{Unit: 0x15, Inst: 0x123000, VA: 0x10_2345_6000, Info: 0xc3}
	for name, c := range map[string]struct {
		event      func(*gf100.VGPU, *fakeCard)
		shown, ack registers
	}{
		"engine event": {func(v *gf100.VGPU, _ *fakeCard) { v.EngineEvent(1<<chip.EngineGR | 1<<chip.EngineCE1) },
			registers{0x25a4: 1<<chip.EngineGR | 1<<chip.EngineCE1, 0x100: 1 << 8},
			registers{0x25a8: 1, 0x25a8 + 4*chip.EngineCE1: 1}},
		"MMU fault": {func(v *gf100.VGPU, _ *fakeCard) { v.MMUFault(3, fault) },
			registers{0x259c: 1 << 0x15, 0x2950: 0x123, 0x2954: 0x23456000, 0x2958: 0x10, 0x295c: 0xc3}, registers{0x259c: 1 << 0x15}},
		"fault of a window": {func(v *gf100.VGPU, c *fakeCard) {
			c.fault = &chip.MMUFault{Unit: 4, VA: 0x5000, Info: 0x42}
			v.ReadBAR(devmodel.BAR1, 0x5000, make([]byte, 4))
		}, registers{0x259c: 1 << 4}, registers{0x259c: 1 << 4}},
		"bind error": {func(v *gf100.VGPU, _ *fakeCard) { v.BindError() },
			registers{0x2100: chip.IntrBind, 0x252c: chip.BindInvalid}, registers{0x2100: chip.IntrBind}},
		"runlist error": {func(v *gf100.VGPU, _ *fakeCard) { v.RunlistError() },
			registers{0x2100: chip.IntrSched, 0x254c: chip.SchedRunlistData}, registers{0x2100: chip.IntrSched}},
		"runlist done": {func(v *gf100.VGPU, _ *fakeCard) { v.Done(true) },
			registers{0x2100: chip.IntrRunlist}, registers{0x2a00: 1 << 28}},
	} {
		t.Run(name, func(t *testing.T) {
			v, card, h := newGPU(t)
			enableInterrupts(v)
			require.False(t, h.line.Level)
			c.event(v, card)
			for reg, want := range c.shown {
				require.Equal(t, want, rd(v, reg), "%06x", reg)
			}
			require.Equal(t, 1, h.edges)
			next := &fakeHost{}
			v.AttachHost(next)
			require.True(t, next.line.Level, "the next host finds the line as it is")
			v.AttachHost(h)
			wr(v, 0x2140, 0)
			require.False(t, h.line.Level, "PFIFO's interrupts are off")
			wr(v, 0x2140, ^uint32(0))
			for reg, x := range c.ack {
				require.True(t, h.line.Level)
				wr(v, reg, x)
			}
			require.False(t, h.line.Level)
		})
	}
}

// TestFaultsWaitForTheirSlot: a slot shows one fault, the next one after the guest has cleared it,
// and none of a channel that was bound again.
func TestFaultsWaitForTheirSlot(t *testing.T) {
	v, _, h := newGPU(t)
	enableInterrupts(v)
	for id := range uint8(3) {
		v.MMUFault(id, chip.MMUFault{Unit: 0x15, Inst: uint64(id+1) << 12})
	}
	require.Equal(t, uint32(1), rd(v, 0x2950))
	wr(v, 0x259c, 1<<0x15)
	require.True(t, h.line.Level)
	require.Equal(t, uint32(2), rd(v, 0x2950))
	wr(v, 0x3000+2*8, 0)
	wr(v, 0x259c, 1<<0x15)
	require.False(t, h.line.Level)
}

// TestWritesReachTheCard: the card gets the values of rows that are translated.
func TestWritesReachTheCard(t *testing.T) {
	type write struct {
		reg uint64
		v   uint32
	}
	for _, c := range []struct {
		name   string
		writes []write
		want   []string
	}{
		{"runlist", []write{{0x2270, 0x30000123}, {0x2274, 0x01f00002}}, []string{"Runlist 0x30000123 0x1f00002"}},
		{"invalidate", []write{{0x100cb8, 0x1234560}, {0x100cbc, 0x80000001}}, []string{"Invalidate 0x1234560 0x80000001"}},
		{"fault trigger", []write{{0x2a30 + 4*chip.EngineCE0, 0x100 | chip.EngineCE0}, {0x2a30, 0xff}}, []string{"EndEngine 4"}},
		{"PFIFO on", []write{{0x2200, 1}}, []string{"MayRun 0x1"}},
		{"another runlist kept from running", []write{{0x2200, 1}, {0x2630, 2}}, []string{"MayRun 0x1", "MayRun 0x1"}},
		{"the runlist kept from running", []write{{0x2200, 1}, {0x2630, 3}, {0x2630, 0}},
			[]string{"MayRun 0x1", "MayRun 0x0", "MayRun 0x1"}},
		{"channel", []write{{0x3000 + 9*8, 0xc0000123}, {0x3004 + 9*8, 1}, {0x3004 + 9*8, 0}, {0x3000 + 9*8, 0}},
			[]string{"Bind 9 0xc0000123", "Enable 9 0x1", "Enable 9 0x0", "Bind 9 0x0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, card, _ := newGPU(t)
			methods := []string{"Runlist", "Invalidate", "EndEngine", "MayRun", "Bind", "Enable"}
			require.Equal(t, []string{"MayRun 0x0"}, card.took(methods...), "PFIFO is off at power-on")
			for _, w := range c.writes {
				wr(v, w.reg, w.v)
			}
			require.Equal(t, c.want, card.took(methods...))
		})
	}
}

// TestPFIFOReset switches PFIFO off as a driver does that finds it in use.
func TestPFIFOReset(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	wr(v, 0x200, ^uint32(0))
	wr(v, 0x2200, 1)
	wr(v, 0x3000+9*8, 0xc0000123)
	v.EngineEvent(1)
	require.True(t, h.line.Level)
	c.took()
	wr(v, 0x200, ^uint32(chip.EnablePFIFO))
	calls := c.took("Bind", "Enable", "MayRun")
	require.Contains(t, calls, "Bind 9 0x0")
	require.Contains(t, calls, "Enable 9 0x0")
	require.Equal(t, "MayRun 0x0", calls[len(calls)-1])
	require.Zero(t, rd(v, 0x3000+9*8))
	require.Zero(t, rd(v, 0x2140))
	require.Equal(t, uint32(1<<chip.PBDMAs-1), rd(v, 0x2204))
	require.Zero(t, rd(v, 0x4010c))
	require.False(t, h.line.Level)
}

func TestRunlistPending(t *testing.T) {
	v, c, _ := newGPU(t)
	c.runlistPending = true
	require.NotZero(t, rd(v, 0x227c)&(1<<20))
	c.runlistPending = false
	require.Zero(t, rd(v, 0x227c)&(1<<20))
}

// TestRefusedMethodsQueue gives PGRAPH two refused methods and a copy engine one: each is
// shown where drivers look, and each channel continues when its own engine is resumed.
func TestRefusedMethodsQueue(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	wr(v, 0x40013c, ^uint32(0))
	v.GraphTrap(7, chip.GraphTrap{Intr: chip.GraphIntrIllegalMthd, Inst: 0x7000, Subchannel: 2, Class: 0x9097, Method: 0x1234, Data: 77})
	v.GraphTrap(8, chip.GraphTrap{Intr: chip.GraphIntrIllegalClass, Inst: 0x8000, Data: 88})
	require.True(t, h.line.Level)
	require.Equal(t, uint32(1<<12), rd(v, 0x100))
	require.Equal(t, uint32(chip.GraphIntrIllegalMthd), rd(v, 0x400100))
	require.Equal(t, uint32(2<<16|0x1234), rd(v, 0x400704))
	require.Equal(t, uint32(77), rd(v, 0x400708))
	require.Equal(t, uint32(0x9097), rd(v, 0x404208))
	require.Equal(t, uint32(7), rd(v, 0x409b00)&0xfffffff)
	wr(v, 0x400500, 0x00010001)
	require.Empty(t, c.took("Resume"), "not acknowledged")
	wr(v, 0x400100, ^uint32(0))
	wr(v, 0x400500, 0x00010001)
	require.Equal(t, []string{"Resume 7"}, c.took("Resume"))
	require.Equal(t, uint32(chip.GraphIntrIllegalClass), rd(v, 0x400100))
	wr(v, 0x3000+8*8, 0)
	wr(v, 0x400100, ^uint32(0))
	wr(v, 0x400500, 0x00010001)
	require.Empty(t, c.took("Resume"), "a channel that was bound again has no error")
	require.False(t, h.line.Level)

	wr(v, 0x105010, 1<<6)
	wr(v, 0x10501c, 1<<6)
	v.CopyTrap(9, chip.CopyTrap{Engine: 1, Inst: 0x9000, Subchannel: 5, Method: 0x700, Data: 99, Status: 1})
	require.Equal(t, uint32(1<<6), rd(v, 0x100))
	require.Equal(t, uint32(5<<27|0x700<<14|1), rd(v, 0x105040))
	require.Equal(t, uint32(99), rd(v, 0x105044))
	wr(v, 0x105004, 1<<6)
	require.Equal(t, []string{"Resume 9"}, c.took("Resume"))
	require.Zero(t, rd(v, 0x100))
}

// TestPBDMAErrorsQueue gives a guest more errors than it has PBDMAs: each is shown once,
// and each channel continues when its own is acknowledged.
func TestPBDMAErrorsQueue(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	for ch := range uint8(5) {
		v.PBDMAError(chip.PBDMAError{PBDMA: 1, Channel: ch, Intr: chip.PBDMAIntrMethod, Method: 0x100 + uint32(ch), Data: uint32(ch)})
	}
	require.True(t, h.line.Level)
	wr(v, 0x4010c, 0)
	require.Equal(t, uint32(6), rd(v, 0x25a0), "PBDMA 0 may not interrupt")
	wr(v, 0x4010c, ^uint32(0))
	seen := map[uint32]bool{}
	for range 5 {
		mask := rd(v, 0x25a0)
		require.NotZero(t, mask)
		for i := range uint64(chip.PBDMAs) {
			if mask>>i&1 == 0 {
				continue
			}
			base := 0x40000 + i*0x2000
			ch := rd(v, base+0x120)
			require.Equal(t, []uint32{0x100 + ch, ch}, []uint32{rd(v, base+0xc0), rd(v, base+0xc4)})
			require.False(t, seen[ch])
			seen[ch] = true
			wr(v, base+0xc0, passOver)
			wr(v, base+0x108, chip.PBDMAIntrMethod)
			break
		}
	}
	require.Len(t, seen, 5)
	require.Len(t, c.took("Resume"), 5)
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
		{chip.PBDMAIntrMethod, 0, true, false},
		{chip.PBDMAIntrEmptySubch, 0x1234, true, true},
		{chip.PBDMAIntrSemaphore, passOver, false, true},
		{chip.PBDMAIntrPBEntry, 0, false, false},
		{chip.PBDMAIntrMethod, 0, true, false}, // the bit of before is not this one's
	} {
		v.PBDMAError(chip.PBDMAError{Channel: uint8(i), Intr: x.intr, Method: 0x20100})
		if x.clearly {
			wr(v, 0x400c0, x.method)
		}
		wr(v, 0x40108, x.intr)
		want := "Resume"
		if x.retry {
			want = "Retry"
		}
		require.Equal(t, []string{fmt.Sprint(want, " ", i)}, c.took("Resume", "Retry"))
		wr(v, 0x400c0, passOver) // nothing is held: it means nothing
	}
}

// TestPBDMAErrorsOfReboundChannels: binding a channel again ends its error, and the PBDMA
// that showed it is free for those that wait.
func TestPBDMAErrorsOfReboundChannels(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	for ch := range uint8(4) {
		v.PBDMAError(chip.PBDMAError{PBDMA: ch, Channel: ch, Intr: chip.PBDMAIntrMethod, Data: uint32(ch)})
	}
	require.Equal(t, uint32(7), rd(v, 0x25a0))
	wr(v, 0x3000, 0) // channel 0, whose error PBDMA 0 shows
	wr(v, 0x40108, chip.PBDMAIntrMethod)
	require.Empty(t, c.took("Resume"))
	require.Equal(t, uint32(7), rd(v, 0x25a0), "the fourth error waited for a PBDMA")
	require.Equal(t, uint32(3), rd(v, 0x400c4))
	for i := range uint64(chip.PBDMAs) {
		wr(v, 0x400c0+i*0x2000, passOver)
		wr(v, 0x40108+i*0x2000, chip.PBDMAIntrMethod)
	}
	require.ElementsMatch(t, []string{"Resume 1", "Resume 2", "Resume 3"}, c.took("Resume"))
	require.False(t, h.line.Level)
}

func TestDoorbellAndUSERD(t *testing.T) {
	v, c, _ := newGPU(t)
	const base = 0x40000 // of the poll area in BAR1
	wr(v, 0x2254, 1<<28|base>>12)
	put := make([]byte, 4)
	v.WriteBAR(devmodel.BAR1, base+7*chip.USERDSize+chip.USERDGPPut, put)
	v.WriteBAR(devmodel.BAR1, base+8*chip.USERDSize+chip.USERDGPGet, put)
	v.WriteBAR(devmodel.BAR1, base-4, put)
	require.Equal(t, []string{"Doorbell 7"}, c.took("Doorbell"))
	v.ReadBAR(devmodel.BAR1, base+9*chip.USERDSize+chip.USERDGPGet, put)
	v.ReadBAR(devmodel.BAR1, base+chip.Channels*chip.USERDSize, put)
	require.Equal(t, []string{"Refresh 9"}, c.took("Refresh"))
}

func TestResetForgets(t *testing.T) {
	v, c, h := newGPU(t)
	enableInterrupts(v)
	v.EngineEvent(1)
	v.PBDMAError(chip.PBDMAError{Channel: 3, Intr: 1})
	v.GraphTrap(7, chip.GraphTrap{Intr: chip.GraphIntrIllegalMthd})
	require.NoError(t, v.Reset())
	reset := slices.Index(c.calls, "Reset")
	require.GreaterOrEqual(t, reset, 0)
	require.Equal(t, []string{"BAR1Block 0x0", "BAR3Block 0x0"}, c.calls[reset-2:reset], "BAR1 and BAR3 show no tables")
	for _, window := range []string{"PRAMINBase 0x0", "PollBase 0x0", "MayRun 0x0"} { // they follow the registers
		require.Contains(t, c.calls[reset:], window)
	}
	require.False(t, h.line.Level)
	require.Zero(t, rd(v, 0x25a4))
	require.Zero(t, rd(v, 0x25a0))
	require.Zero(t, rd(v, 0x400100))
	v.GraphTrap(8, chip.GraphTrap{Intr: chip.GraphIntrIllegalMthd})
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
