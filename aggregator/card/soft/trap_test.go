package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// graphTrap waits for PGRAPH's interrupt and checks its registers.
func (r *rig) graphTrap(c *testChannel, intr, subch, class, method, data uint32) {
	r.t.Helper()
	r.eventually("PGRAPH interrupt", func() bool { return r.rd(0x100)&(1<<12) != 0 })
	require.Equal(r.t, intr, r.rd(0x400100))
	require.Equal(r.t, subch<<16|method, r.rd(0x400704))
	require.Equal(r.t, data, r.rd(0x400708))
	require.Equal(r.t, class, r.rd(0x404200+subch*4))
	require.Equal(r.t, uint32(c.inst>>12), r.rd(0x409b00)&0xfffffff)
}

// graphAck resumes PGRAPH as nouveau does.
func (r *rig) graphAck() {
	r.wr(0x400100, r.rd(0x400100))
	r.wr(0x400500, 0x00010001)
}

// Instructions of a macro: it counts its parameter down, and sends it to method 0ffc.
const (
	countDown  = 0xffffc911
	untilZero  = 0xffffc837
	sendTo0ffc = 0x3ff<<14 | 0x21
	sendFirst  = 0x841
)

func TestGraphTraps(t *testing.T) {
	for _, tc := range []struct {
		name         string
		words        []uint32
		intr         uint32
		class        uint32
		method, data uint32
		code         uint32
	}{
		{"invalid bit field among inline words", cat(incr(2, 0, classM2MF), nonIncr(2, 0x238, 1, 0x100)), gf100.GraphIntrDataError, classM2MF, 0x238, 0x100, 0xc},
		{"illegal class", incr(2, 0, 0x1234), gf100.GraphIntrIllegalClass, 0x1234, 0, 0x1234, 0},
		{
			"illegal method of a macro that took several steps", cat(incr(2, 0, classM2MF), incr(2, 0x11c, 0), incr(2, 0x120, 0), incr(2, 0x114, 0),
				nonIncr(2, 0x118, countDown, untilZero, sendTo0ffc, sendFirst), incr(2, 0x3800, 200000)),
			gf100.GraphIntrIllegalMthd, classM2MF, 0xffc, 0, 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, cs := newChannels(t, 3)
			c, other, host := cs[0], cs[1], cs[2]
			edges := r.host.edgeCount()
			c.submit(cat(tc.words, release(0, 1))...)
			r.graphTrap(c, tc.intr, 2, tc.class, tc.method, tc.data)
			if tc.code != 0 {
				require.Equal(t, tc.code, r.rd(0x400110))
			}
			require.Greater(t, r.host.edgeCount(), edges)
			// PGRAPH is trapped: for this channel, and for others.
			other.submit(cat(incr(2, 0, classM2MF), copyM2MF(vaRAM, vaData, 4), release(0, 1))...)
			r.steady("PGRAPH is trapped", func() bool { return c.semaphore(0)|other.semaphore(0) == 0 })
			host.alive() // a channel without need of it continues
			r.wr(0x400500, 0x00010001)
			r.steady("nothing was acknowledged", func() bool { return c.semaphore(0) == 0 })
			r.graphAck()
			require.Zero(t, r.rd(0x100)&(1<<12))
			c.waitSemaphore(0, 1)
			other.waitSemaphore(0, 1)
			require.EqualValues(t, 1, r.card.Stats().EngineErrors.Load())
			if tc.class == classM2MF {
				require.EqualValues(t, 1, r.card.Stats().Engine.Class(classM2MF).Illegal.Load(), "no word is sent again")
			}
		})
	}
}

// TestProgramTrap: what a program did wrong stands where nouveau looks for it: in the registers of a
// shader processor, which those of PGRAPH lead to. The channel goes on behind the launch.
func TestProgramTrap(t *testing.T) {
	for _, tc := range []struct {
		program      string
		warp, global uint32
	}{
		{"mov b32 $r60 0x1\nexit", gf100.MPGPROutOfBounds, 0},
		{"brk", gf100.MPStackMismatch, 0},
		{"ld b32 $r0 ca l[$r0]", gf100.MPMemOutOfBounds, 0},
		{"mov b32 $r0 0x1\nmov b32 $r1 0x0\nld b32 $r0 ca g[$r0d]", gf100.MPMisalignedAddr, 0},
	} {
		t.Run(tc.program, func(t *testing.T) {
			r, cs := newChannels(t, 2)
			cs[0].submit(cat(cs[0].launch(tc.program, 1), release(0, 1))...)
			r.graphTrap(cs[0], gf100.GraphIntrTrap, 1, 0x90c0, 0x368, 0)
			require.EqualValues(t, gf100.GraphTrapGPCs, r.rd(0x400108))
			require.EqualValues(t, 1, r.rd(0x400118))
			require.EqualValues(t, gf100.GPCTrapTPC, r.rd(0x502c90))
			require.EqualValues(t, gf100.TPCTrapMP, r.rd(0x504508))
			require.Equal(t, tc.warp, r.rd(0x504648))
			require.Equal(t, tc.global, r.rd(0x504650))
			require.Contains(t, r.card.ProgramReport(uint32(cs[0].id)), "block [0 0 0], warp 0")
			require.Empty(t, r.card.ProgramReport(uint32(cs[1].id)))
			r.wr(0x504648, 0)
			r.wr(0x504650, tc.global)
			require.Zero(t, r.rd(0x504508))
			r.wr(0x502c90, gf100.GPCTrapTPC)
			r.wr(0x400118, 1)
			r.wr(0x400108, gf100.GraphTrapGPCs)
			r.graphAck()
			for _, reg := range []uint32{0x400108, 0x400118, 0x502c90} {
				require.Zero(t, r.rd(reg))
			}
			cs[0].waitSemaphore(0, 1)
			cs[1].alive()
		})
	}
}

// TestProgramMMUFault: an access of a program that has no page faults like one of a GPC, not like
// one of the hub, and the card says at which instruction.
func TestProgramMMUFault(t *testing.T) {
	r, cs := newChannels(t, 2)
	cs[0].submit(cs[0].launch("mov b32 $r0 0x0\nmov b32 $r1 0x70\nst b32 wb g[$r0d] $r0\nexit", 1)...)
	r.eventually("fault", func() bool { return r.rd(0x259c) == 1 })
	require.EqualValues(t, 0x70, r.rd(0x2808))
	require.EqualValues(t, 1<<8|1<<7, r.rd(0x280c)&^0xf)
	require.Contains(t, r.card.ProgramReport(uint32(cs[0].id)), `address not mapped at 0x10 "st b32 wb g[$r0d] $r0"`)
	cs[1].alive()
}

// A trapped channel that the driver kills, or that PGRAPH is reset under, does not keep PGRAPH
// from the others.
func TestTrapEnds(t *testing.T) {
	for name, end := range map[string]func(r *rig, c *testChannel){
		"unbound": func(r *rig, c *testChannel) { c.unbind(); r.graphAck() },
		"reset":   func(r *rig, _ *testChannel) { r.wr(0x200, ^uint32(1<<12)); r.wr(0x200, ^uint32(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			r, cs := newChannels(t, 2)
			cs[0].submit(cat(incr(2, 0, classM2MF), incr(2, 0xffc, 7))...)
			r.eventually("trap", func() bool { return r.rd(0x400100) != 0 })
			cs[1].submit(cat(incr(2, 0, classM2MF), copyM2MF(vaRAM, vaData, 4), release(0, 1))...)
			end(r, cs[0])
			cs[1].waitSemaphore(0, 1)
		})
	}
}

func TestCopyEngineTrap(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.submit(cat(incr(3, 0, classCE1), incr(3, 0x200, 0x80000000), release(0, 1))...)
	r.eventually("interrupt", func() bool { return r.rd(0x100)&(1<<6) != 0 })
	// As nouveau's falcon handler reads it.
	const base = 0x105000
	dest := r.rd(base + 0x1c)
	require.Equal(t, uint32(0x40), r.rd(base+0x8)&dest&^(dest>>16))
	require.Equal(t, uint32(3|(3<<11|0x200>>2)<<16), r.rd(base+0x40))
	require.Equal(t, uint32(0x80000000), r.rd(base+0x44))
	require.Equal(t, uint32(c.inst>>12), r.rd(base+0x50)&0xfffffff)
	require.Zero(t, c.semaphore(0))
	r.wr(base+0x4, 0x40)
	c.waitSemaphore(0, 1)
}

// Each PBDMA may hold a channel for software. One that is unbound gives its PBDMA back.
func TestHeldPBDMAs(t *testing.T) {
	r, cs := newChannels(t, 4)
	for _, c := range cs[:3] {
		c.submit(incr(7, 0x400, 1)...)
	}
	r.eventually("all are held", func() bool { return r.rd(0x25a0) == 7 })
	cs[3].submit(release(0, 1)...)
	r.steady("no PBDMA is left to run it", func() bool { return cs[3].semaphore(0) == 0 })
	cs[0].unbind()
	cs[3].waitSemaphore(0, 1)
}
