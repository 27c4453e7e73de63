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
