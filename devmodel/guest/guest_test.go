package guest_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// newBoard serves a software card and returns its socket.
func newBoard(t testing.TB) string {
	t.Helper()
	s, err := testserver.New(testserver.Config{Card: soft.Config{VRAM: 64 << 20}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.Socket()
}

func attach(t testing.TB, cfg guest.Config) *guest.Guest {
	t.Helper()
	g, err := guest.Attach(ctx, newBoard(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func noise(seed, n uint64) []byte {
	b := make([]byte, n)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	rand.NewChaCha8(key).Read(b)
	return b
}

// channel makes a space and a channel in it.
func channel(t testing.TB, g *guest.Guest, id int) (*guest.Space, *guest.Channel) {
	t.Helper()
	s, err := g.NewSpace()
	require.NoError(t, err)
	ch, err := g.NewChannel(id, s)
	require.NoError(t, err)
	return s, ch
}

func contents(t testing.TB, b *guest.Buffer) []byte {
	t.Helper()
	p := make([]byte, b.Size)
	require.NoError(t, b.Read(0, p))
	return p
}

const (
	srcVA = 0x1000_0000
	dstVA = 0x2000_0000
)

// buffer makes a mapped buffer full of noise.
func buffer(t testing.TB, g *guest.Guest, s *guest.Space, va, n uint64, ram bool, f guest.Flags) *guest.Buffer {
	t.Helper()
	alloc := g.AllocVRAM
	if ram {
		alloc = g.AllocRAM
	}
	b, err := alloc(n)
	require.NoError(t, err)
	require.NoError(t, b.Write(0, noise(va>>12, n)))
	require.NoError(t, s.Map(va, b, f))
	return b
}

// A view with a limit sees the directory only so far.
func TestViewLimit(t *testing.T) {
	g := attach(t, guest.Config{})
	s, ch := channel(t, g, 1)
	buffer(t, g, s, srcVA, 4096, false, guest.Small)
	buffer(t, g, s, 0xff_f000_0000, 4096, false, guest.Small)
	require.NoError(t, ch.Copy(guest.CE0, 0xff_f000_0000, srcVA, 4096))
	require.NoError(t, ch.Finish())
	short, err := g.NewChannel(2, s.View(0xff_efff_ffff))
	require.NoError(t, err)
	require.NoError(t, short.Copy(guest.CE0, 0xff_f000_0000, srcVA, 4096))
	var stopped *guest.ChannelError
	require.ErrorAs(t, short.Finish(), &stopped)
	require.Equal(t, shadowpt.VMLimitExceeded, stopped.Fault.Reason)
}

func TestReset(t *testing.T) {
	for _, irq := range []guest.Interrupts{guest.MSI, guest.INTx, guest.None} {
		g := attach(t, guest.Config{Interrupts: irq})
		for range 5 {
			s, ch := channel(t, g, 1)
			buffer(t, g, s, srcVA, 4096, true, guest.Small)
			dst := buffer(t, g, s, dstVA, 4096, false, guest.Small)
			require.NoError(t, ch.Copy(guest.M2MF, dstVA, srcVA, 4096))
			require.NoError(t, ch.Finish())
			require.Equal(t, noise(srcVA>>12, 4096), contents(t, dst))
			require.NoError(t, ch.Copy(guest.CE0, 0x7000_0000, srcVA, 4096)) // a fault on the way
			addr := dst.Addr
			require.NoError(t, g.Reset())
			got := make([]byte, 4096)
			require.NoError(t, g.Raw().VRAM(addr, got))
			require.Equal(t, make([]byte, 4096), got, "a reset leaves nothing in VRAM")
		}
	}
}

// The machine dies in the middle of copies; the next one attaches and works.
func TestReattach(t *testing.T) {
	socket := newBoard(t)
	for range 5 {
		g, err := guest.Attach(ctx, socket, guest.Config{})
		require.NoError(t, err)
		s, ch := channel(t, g, 1)
		src := buffer(t, g, s, srcVA, 1<<20, true, guest.Small)
		dst := buffer(t, g, s, dstVA, 1<<20, true, guest.Small)
		require.NoError(t, ch.Copy(guest.CE0, dstVA, srcVA, 4096))
		require.NoError(t, ch.Finish())
		require.Equal(t, src.Data[:4096], dst.Data[:4096])
		for range 30 {
			require.NoError(t, ch.Copy(guest.CE1, dstVA, srcVA, 1<<20))
		}
		require.NoError(t, g.Close())
	}
}
