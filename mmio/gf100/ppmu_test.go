package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type pmuHost struct {
	*bench
	send, recv uint32
}

func startPMU(t testingT, b *bench) *pmuHost {
	t.Helper()
	b.boot(0x10a000)
	h := &pmuHost{b, b.Read32(0x10a4d0), b.Read32(0x10a4dc)}
	if h.send == 0 || h.recv == 0 {
		t.Errorf("the PMU announced no rings")
		t.FailNow()
	}
	h.send, h.recv = h.send&0xffff, h.recv&0xffff
	b.Write32(0x10a010, 0xe0)
	return h
}

func (h *pmuHost) lock(owner uint32) bool {
	h.Write32(0x10a580, owner)
	return h.Read32(0x10a580) == owner
}

func (h *pmuHost) post(process, message, data0, data1 uint32) {
	put := h.Read32(0x10a4a0)
	h.Write32(0x10a1c0, 0x01000000|(put&7<<4+h.send))
	for _, v := range []uint32{process, message, data0, data1} {
		h.Write32(0x10a1c4, v)
	}
	h.Write32(0x10a4a0, (put+1)&15)
}

func (h *pmuHost) reply() []uint32 {
	get := h.Read32(0x10a4cc)
	if get == h.Read32(0x10a4c8) {
		return nil
	}
	out := h.data(0x10a000, get&7<<4+h.recv, 4)
	h.Write32(0x10a4cc, (get+1)&15)
	return out
}

func TestPMUStart(t *testing.T) {
	b := newBench(t, FaceConfig{})
	require.Zero(t, b.Read32(0x10a04c))
	require.Zero(t, b.Read32(0x10a10c)&6)
	h := startPMU(t, b)
	require.Equal(t, uint32(0x00800800), b.Read32(0x10a4d0))
	require.Equal(t, uint32(0x00800880), b.Read32(0x10a4dc))
	require.True(t, h.lock(1))
	require.False(t, h.lock(2), "the mutex has an owner")
	b.Write32(0x10a580, 0)
	require.True(t, h.lock(2))
}

func TestPMUMessages(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x140, 1)
	h := startPMU(t, b)

	h.post(pmuMEMX, memxInfo, 0, 0)
	_, edge := b.face.Settle()
	require.True(t, edge)
	require.Equal(t, uint32(1<<24), b.Read32(0x100))
	route := b.Read32(0x10a01c)
	require.NotZero(t, b.Read32(0x10a008)&route&^(route>>16)&0x40)
	b.Write32(0x10a004, 0x40)
	level, _ := b.face.Settle()
	require.False(t, level)
	require.Equal(t, []uint32{pmuMEMX, memxInfo, memxData, memxDataSize}, h.reply())
	require.Equal(t, b.Read32(0x10a4a0), b.Read32(0x10a4b0), "the message was taken")

	h.post(pmuMEMX, memxInfo, memxInfoTrain, 0)
	require.Equal(t, []uint32{pmuMEMX, memxInfo, memxTrain, memxTrainSize}, h.reply())

	// A script: host blocked, two writes, a wait, a delay, host running.
	b.Write32(0x10a1c0, 0x01000000|memxData)
	script := []uint32{1, 4<<16 | 3, 0x10f290, 0x0b343825, 0x10f294, 0x3483028e, 4<<16 | 4, 0x137390, 2, 2, 64000, 1<<16 | 5, 1000, 2}
	for _, v := range script {
		b.Write32(0x10a1c4, v)
	}
	end := b.Read32(0x10a1c0) & 0xffffff
	h.post(pmuMEMX, memxExec, memxData, end)
	require.Equal(t, []uint32{pmuMEMX, memxExec, 0, 0}, h.reply())
	require.Equal(t, uint32(0x0b343825), b.Read32(0x10f290))
	require.Equal(t, uint32(0x3483028e), b.Read32(0x10f294))

	h.post(pmuI2C, i2cRead, 2<<24|0x50<<14, 0)
	r := h.reply()
	require.Len(t, r, 4)
	require.NotZero(t, r[2], "no device acknowledges")

	h.post(pmuTEST, 0, 0, 0)
	h.post(0x12345678, 0, 0, 0) // of no unit
	require.Nil(t, h.reply())
	require.Equal(t, uint32(1), b.Read32(0x10a5d8))
}

// Replies that the host does not read fill their ring; later messages wait, and are
// answered when there is room again.
func TestPMURingFull(t *testing.T) {
	b := newBench(t, FaceConfig{})
	h := startPMU(t, b)
	for range 10 {
		h.post(pmuMEMX, memxInfo, 0, 0)
	}
	require.Equal(t, uint32(8), b.Read32(0x10a4b0))
	n := 0
	for h.reply() != nil {
		n++
	}
	require.Equal(t, 10, n)
	require.Equal(t, uint32(10), b.Read32(0x10a4b0))
}

// A script that rings the PMU's own doorbell, resets the PMU, or is garbage ends.
func TestPMUHostileScript(t *testing.T) {
	b := newBench(t, FaceConfig{})
	rapid.Check(t, func(t *rapid.T) {
		b.face.Reset()
		h := startPMU(t, b)
		word := rapid.OneOf(rapid.Just(uint32(2<<16|3)), rapid.Uint32Range(0, 9), rapid.Uint32(),
			rapid.SampledFrom([]uint32{0x10a4a0, 0x10a4cc, 0x10a100, 0x200, 0x10a1c4, 0x10a1c0}))
		b.Write32(0x10a1c0, 0x01000000|memxData)
		for _, v := range rapid.SliceOfN(word, 1, 40).Draw(t, "script") {
			b.Write32(0x10a1c4, v)
		}
		h.post(pmuMEMX, memxExec, memxData+rapid.Uint32Range(0, 64).Draw(t, "skip"), rapid.Uint32().Draw(t, "end"))
		h.post(rapid.SampledFrom([]uint32{pmuMEMX, pmuI2C, pmuTEST}).Draw(t, "process"), rapid.Uint32Range(0, 2).Draw(t, "message"),
			rapid.Uint32().Draw(t, "data0"), rapid.Uint32().Draw(t, "data1"))
	})
}
