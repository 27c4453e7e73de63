package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

const (
	classM2MF = 0x9039
	classCE0  = 0x0490b5
)

func newChannelRig(t *testing.T, cfg soft.Config) (*rig, *testChannel) {
	r := newRig(t, cfg)
	c := r.newChannel(1, r.bar1())
	r.runlist(1)
	return r, c
}

func TestFenceAndInterrupt(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	before := r.host.edges()
	c.submit(cat(release(0, 7), incr(0, 0x20, 0))...)
	c.waitSemaphore(0, 7)
	require.Eventually(t, func() bool { return r.host.edges() > before }, waitFor, tick)
	require.NotZero(t, r.rd(0x100)&(1<<8), "PMC shows PFIFO")
	require.Equal(t, uint32(1<<31), r.rd(0x2100), "PFIFO shows an engine event")
	require.Equal(t, uint32(1), r.rd(0x25a4))
	r.wr(0x25a8, 1)
	require.Zero(t, r.rd(0x2100))
	require.Equal(t, uint32(1), c.getGPGet())
}

func TestCopyM2MF(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	src := make([]byte, 4096)
	for i := range src {
		src[i] = byte(i * 7)
	}
	r.vramWrite(c.data, src)
	c.submit(cat(
		incr(2, 0, classM2MF),
		incr(2, 0x238, 0, vaRAM),   // destination
		incr(2, 0x30c, 0, vaData),  // source
		incr(2, 0x314, 4096, 4096), // pitches
		incr(2, 0x31c, 4096, 1),    // line length, lines
		incr(2, 0x300, 1<<4|1<<8),  // launch, both linear
		release(0, 1),
	)...)
	c.waitSemaphore(0, 1)
	require.Equal(t, src, r.host.ram[:4096])
}

func TestCopyNoOpControl(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{DisableEngines: true})
	r.vramWrite(c.data, []byte{1, 2, 3, 4})
	c.submit(cat(
		incr(2, 0, classM2MF), incr(2, 0x238, 0, vaRAM), incr(2, 0x30c, 0, vaData),
		incr(2, 0x314, 4096, 4096), incr(2, 0x31c, 4, 1), incr(2, 0x300, 1<<4|1<<8), release(0, 1),
	)...)
	c.waitSemaphore(0, 1)
	require.Equal(t, make([]byte, 4), r.host.ram[:4], "a card without engines must move nothing")
}
