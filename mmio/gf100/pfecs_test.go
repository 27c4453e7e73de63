package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The controller starts again after a reset by PMC, and its current channel is gone.
// TestProbe has the rest of nouveau's use.
func TestFECSRecovery(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.boot(0x409000)
	require.Equal(t, uint32(0x2000), b.Read32(0x409804))
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

// The methods of the golden context come through a port with a trigger.
func TestMethodPort(t *testing.T) {
	b := newBench(t, FaceConfig{})
	var got [][3]uint32
	b.face.OnMethod(func(class, method, data uint32) { got = append(got, [3]uint32{class, method, data}) })
	b.Write32(0x40448c, 4)
	b.Write32(0x404488, 0x3ffc<<14|0x9097)
	b.Write32(0x404488, 0x80000000|0x3ffc<<14|0x9097)
	require.Equal(t, [][3]uint32{{0x9097, 0x3ffc, 4}}, got)
}
