package gh100

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio"
)

// testBoard is a chip with nothing behind it.
type testBoard struct {
	*mmio.Space
	*Face
	booted []uint64
}

func newBoard(t require.TestingT) *testBoard {
	b := new(testBoard)
	var err error
	b.Face, err = NewFace(FaceConfig{
		VRAM: 4 << 30, Clock: func() uint64 { return 5<<32 | 7 }, Boot: func(params uint64) { b.booted = append(b.booted, params) },
	})
	require.NoError(t, err)
	var bind mmio.Bindings
	b.Face.Bind(&bind)
	for _, name := range []string{
		"NV_XAL_EP_BAR0_WINDOW", "NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE", "NV_VIRTUAL_FUNCTION_DOORBELL", "NV_PGSP_QUEUE_HEAD",
	} {
		bind.OnWrite(name, func(int, mmio.Write) {})
	}
	bind.OnWindow("PRAMIN", mmio.Window{Read: func(uint32, []byte) {}, Write: func(uint32, []byte) {}})
	b.Space, err = mmio.New(SpaceSize, Blocks(), Apertures(), &bind)
	require.NoError(t, err)
	b.Attach(b.Space)
	return b
}

func (b *testBoard) r(off uint32) uint32 {
	var p [4]byte
	b.Read(off, p[:])
	return binary.LittleEndian.Uint32(p[:])
}

func (b *testBoard) w(off, v uint32) { b.Write(off, binary.LittleEndian.AppendUint32(nil, v)) }

// ask gives FSP a message and returns its answer.
func (b *testBoard) ask(m []byte) (answer [5]uint32) {
	b.w(0x8f2ac0, ememIncWrite)
	for ; len(m) > 0; m = m[4:] {
		b.w(0x8f2ac4, binary.LittleEndian.Uint32(m))
	}
	b.w(0x8f2c04, b.r(0x8f2ac0)&ememOffset-4)
	b.w(0x8f2c00, 0)
	b.w(0x8f2ac0, ememIncRead)
	for i := range answer {
		answer[i] = b.r(0x8f2ac4)
	}
	return answer
}

// chainOfTrust is the message that boots GSP.
func chainOfTrust(params uint64) []byte {
	le := binary.LittleEndian
	m := make([]byte, cotHeader+cotSize)
	le.PutUint32(m, mctpWhole)
	le.PutUint32(m[4:], nvdmCOT<<24|nvdmVendor|nvdmType)
	le.PutUint16(m[8:], cotVersion)
	le.PutUint16(m[10:], cotSize)
	le.PutUint64(m[cotParams:], params)
	return m
}

// TestProbe walks through the registers as a driver's probe does, with what it waits for.
func TestProbe(t *testing.T) {
	b := newBoard(t)
	require.EqualValues(t, 0x180, b.r(0)>>20)
	require.Zero(t, b.r(4))
	require.EqualValues(t, fspBooted, b.r(0x200bc))
	require.EqualValues(t, 4096, b.r(0x1183a4))
	require.EqualValues(t, []uint32{7, 5, 7, 5}, []uint32{b.r(0x9400), b.r(0x9410), b.r(0xbb0080), b.r(0xbb0084)})
	b.w(0x70000, 1)
	require.Zero(t, b.r(0x70000)&2)
	require.NotZero(t, b.r(0x1100f4)&gspLockdown)
	for boot := range 2 {
		require.Equal(t, [5]uint32{mctpWhole, 0x1510de7e, 0, nvdmCOT, 0}, b.ask(chainOfTrust(0x12_3456_7000)))
		require.Len(t, b.booted, boot+1)
		require.EqualValues(t, 0x12_3456_7000, b.booted[boot])
		require.Equal(t, b.r(0x8f2c00), b.r(0x8f2c04), "the queue is empty")
		require.EqualValues(t, []uint32{0, 16}, []uint32{b.r(0x8f2c80), b.r(0x8f2c84)})
		require.Zero(t, b.r(0x110040)|b.r(0x110044)|b.r(0x1100f4)&gspLockdown)
		require.EqualValues(t, gspActive, b.r(0x111388))
		b.HaltGSP()
		require.EqualValues(t, gspUnloaded, b.r(0x110040))
		require.EqualValues(t, gspHalted, b.r(0x111388))
	}
}

// TestFSPRefuses: messages that are no chain of trust are answered with an error, and start nothing.
func TestFSPRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard(t)
		m := chainOfTrust(1)
		if rapid.Bool().Draw(t, "cut") {
			m = m[:4*rapid.IntRange(2, len(m)/4-1).Draw(t, "words")]
		}
		m[rapid.IntRange(0, min(len(m), 12)-1).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		require.NotZero(t, b.ask(m)[4])
		require.Empty(t, b.booted)
	})
}

// TestRandomAccesses: no access makes the chip panic, and only FSP's doorbell starts GSP.
func TestRandomAccesses(t *testing.T) {
	offsets := []uint32{0x8f2ac0, 0x8f2ac4, 0x8f2c00, 0x8f2c04, 0x8f2c80, 0x110004, 0x110040, 0x1103e8, 0x111388, 0xb81000, 0xb8121c, 0xb81400, 0xb81608, 0xb81610}
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard(t)
		for range rapid.IntRange(1, 60).Draw(t, "accesses") {
			off := rapid.SampledFrom(offsets).Draw(t, "register") + rapid.Uint32Range(0, 3).Draw(t, "byte")
			p := make([]byte, 1<<rapid.IntRange(0, 3).Draw(t, "size"))
			if rapid.Bool().Draw(t, "write") {
				for i := range p {
					p[i] = rapid.Byte().Draw(t, "value")
				}
				b.Write(off, p)
			} else {
				b.Read(off, p)
			}
			b.Settle()
		}
		require.Empty(t, b.booted)
	})
}

// TestInterrupts holds the tree against one that knows vectors only.
func TestInterrupts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard(t)
		var pending, enabled [Vectors]bool
		var top [leaves / topShared]bool
		last := false
		vector := rapid.SampledFrom([]uint32{0, 31, 32, 63, 64, 100, VectorGSP})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			v, again := vector.Draw(t, "vector"), false
			leaf, bit := v/leafBits*4, uint32(1)<<(v%leafBits)
			pair := v / leafBits / topShared
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				b.tree.raise(v)
				pending[v] = true
			case 1:
				b.w(0xb81000+leaf, bit)
				pending[v] = false
			case 2:
				b.w(0xb81200+leaf, bit)
				enabled[v] = true
			case 3:
				b.w(0xb81400+leaf, bit)
				enabled[v] = false
			case 4:
				b.w(0xb81608, 1<<pair)
				top[pair], again = true, true
			case 5:
				b.w(0xb81610, 1<<pair)
				top[pair] = false
			}
			want := false
			for v := range uint32(Vectors) {
				want = want || pending[v] && enabled[v] && top[v/leafBits/topShared]
			}
			level, edge := b.Settle()
			require.Equal(t, want, level)
			require.Equal(t, want && (!last || again), edge)
			last = want
		}
	})
}

// TestEvents: an event of GSP's is pending until its driver acknowledges it, and is repeated on request.
func TestEvents(t *testing.T) {
	b := newBoard(t)
	const leaf = 0xb81000 + VectorGSP/leafBits*4
	b.RaiseGSP()
	require.EqualValues(t, gspIntrMessage, b.r(0x110008)&b.r(0x111528))
	require.EqualValues(t, 1<<(VectorGSP%leafBits), b.r(leaf))
	b.w(leaf, b.r(leaf))
	b.w(0x1103e8, 1)
	require.NotZero(t, b.r(leaf))
	b.w(leaf, b.r(leaf))
	b.w(0x110004, gspIntrMessage)
	b.w(0x1103e8, 1)
	require.Zero(t, b.r(leaf)|b.r(0x110008))
	b.Completed(3)
	require.EqualValues(t, 1<<EngineVector(3), b.r(0xb81000))
}

// TestState: a chip that takes over a state goes on as the first one.
func TestState(t *testing.T) {
	a, b := newBoard(t), newBoard(t)
	a.w(0x8f2ac0, ememIncWrite)
	a.w(0x8f2ac4, 0x1234)
	a.w(0xb81200, 1)
	a.w(0xb81608, 1)
	a.Completed(0)
	a.Face.Settle()
	require.NoError(t, b.Space.SetState(a.Space.State()))
	require.NoError(t, b.Face.SetState(a.Face.State()))
	require.Equal(t, a.Face.State(), b.Face.State())
	level, edge := b.Settle()
	require.True(t, level)
	require.False(t, edge, "the first one has sent it")
	st := a.Face.State()
	st.Version++
	require.ErrorContains(t, b.Face.SetState(st), "version")
}
