package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The controller starts again after a reset by PMC, and its current channel is gone.
// TestProbe has the rest of nouveau's use.
func TestFECSRecovery(t *testing.T) {
	b := newBench(t, FaceConfig{ContextSize: 0x3000})
	b.boot(0x409000)
	require.Equal(t, uint32(0x3000), b.Read32(0x409804))
	b.Write32(0x409500, 0x80000000|0x1fe48)
	b.Write32(0x409504, 1)
	require.Equal(t, uint32(0x8001fe48), b.Read32(0x409b00))
	b.Write32(0x200, 1<<12)
	b.Write32(0x200, 0)
	require.Zero(t, b.Read32(0x409800))
	require.Zero(t, b.Read32(0x409b00))
	require.Equal(t, uint32(cpuHalted), b.Read32(0x409100))
	b.Write32(0x200, 1<<12)
	b.boot(0x409000)
	require.NotZero(t, b.Read32(0x409800)&(1<<31))
}

func TestFECSMailboxAliases(t *testing.T) {
	b := newBench(t, FaceConfig{})
	for i := range uint32(mailboxes) {
		b.Write32(0x409800+i*4, 0xff00)
		b.Write32(0x409820+i*4, 0x00f0)
		require.Equal(t, uint32(0xfff0), b.Read32(0x409800+i*4))
		b.Write32(0x409840+i*4, 0xf000)
		require.Equal(t, uint32(0x0ff0), b.Read32(0x409800+i*4))
		require.Zero(t, b.Read32(0x409820+i*4)|b.Read32(0x409840+i*4))
	}
}

func TestMethodsOfTheGoldenContext(t *testing.T) {
	b := newBench(t, FaceConfig{})
	type method struct{ class, method, data uint32 }
	var got []method
	b.face.OnMethod(func(c, m, d uint32) { got = append(got, method{c, m, d}) })
	for _, m := range []method{{0x9097, 0x0800, 1}, {0x902d, 0x0200, 0xcf}, {0x90c0, 0x2700, 3}, {0x9097, 0x3ffc, 4}} {
		b.Write32(0x40448c, m.data)
		b.Write32(0x404488, 0x80000000|m.method<<14|m.class)
	}
	b.Write32(0x404488, 0x9097) // no trigger
	require.Equal(t, []method{{0x9097, 0x0800, 1}, {0x902d, 0x0200, 0xcf}, {0x90c0, 0x2700, 3}, {0x9097, 0x3ffc, 4}}, got)
}

func TestGraphTrap(t *testing.T) {
	b := newBench(t, FaceConfig{})
	resumed := 0
	b.face.OnGraphResume(func() { resumed++ })
	b.Write32(0x140, 1)
	b.Write32(0x40013c, 0xffffffff)
	b.face.RaiseGraph(GraphTrap{
		Intr: GraphIntrIllegalMthd, Inst: 0x1fce6000, Subchannel: 4, Class: 0x9039, Method: 0x1f8, Data: 0x1234,
	})
	_, edge := b.face.Settle()
	require.True(t, edge)
	require.Equal(t, uint32(1<<12), b.Read32(0x100))
	require.Equal(t, uint32(0x10), b.Read32(0x400100))
	require.Equal(t, uint32(0x1fce6), b.Read32(0x409b00)&0x0fffffff)
	require.Equal(t, uint32(4<<16|0x1f8), b.Read32(0x400704))
	require.Equal(t, uint32(0x1234), b.Read32(0x400708))
	require.Equal(t, uint32(0x9039), b.Read32(0x404200+4*4))
	b.Write32(0x400500, 0x00010001)
	require.Zero(t, resumed, "not while it is pending")
	b.Write32(0x400100, 0x10)
	b.Write32(0x400500, 0x00010001)
	require.Equal(t, 1, resumed)
	level, _ := b.face.Settle()
	require.False(t, level)
}
