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
	"github.com/umbra-gpu/umbra/tests/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// board is a software card served at a socket.
type board struct {
	card   *soft.Card
	socket string
}

var ctx = context.Background()

func newBoard(t testing.TB, change ...func(*soft.Config)) *board {
	t.Helper()
	cfg := testserver.Config{Card: soft.Config{VRAM: 64 << 20}}
	for _, f := range change {
		f(&cfg.Card)
	}
	s, err := testserver.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &board{s.Card, s.Socket()}
}

func (b *board) attach(t testing.TB, cfg guest.Config) *guest.Guest {
	t.Helper()
	g, err := guest.Attach(ctx, b.socket, cfg)
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
