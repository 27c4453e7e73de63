package shares

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	other "github.com/umbra-gpu/umbra/tests/cards"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	bufSize  = 1 << 20
	lineSize = 16 << 10

	// endless is a number of lines that no card copies within a test.
	endless = 1<<32 - 1
)

// timeout bounds waits for events that must happen.
const timeout = rig.Patience

// server is a card with a scheduler and its guests, which have these chips by turns.
type server struct {
	*rig.Rig
	t       *testing.T
	chips   []rig.Chip
	clients []*client
}

// cards are one with a meter, one that its driver meters, and those whose address spaces are not tables of
// their driver.
var cards = map[string]testserver.SharedConfig{
	"meter": {}, "no meter": testserver.OtherCards["plain registers"], "own spaces": {GPU: other.Own}, "slow spaces": {GPU: other.Slow},
}

// both are a Hopper and a Fermi that want the same engine.
var both = []rig.Chip{rig.Hopper, rig.FermiCopy}

func newServer(t *testing.T, c testserver.SharedConfig, cfg sched.Config) *server {
	t.Helper()
	c.Card.VRAM, c.Limits.Scheduler = 64<<30, &cfg
	return &server{Rig: rig.New(t, c), t: t, chips: []rig.Chip{rig.Fermi}}
}

func withPolicy(p sched.Policy) sched.Config {
	cfg := sched.Default()
	cfg.Policy = p
	return cfg
}

// client is a guest with a channel that copies. A request copies the same line again
// and again, so its length is the number of lines.
type client struct {
	rig.Driver
	GPU *aggregator.Guest
	t   *testing.T
	ch  rig.Channel

	src, dst uint64
	sent     uint64 // requests
}

func (s *server) add(name string, share sched.NodeConfig) *client {
	s.t.Helper()
	chip := s.chips[len(s.clients)%len(s.chips)]
	e := s.AddChip(chip, aggregator.GuestConfig{Name: name, Map: aperture.MapAll, Share: share})
	c := &client{t: s.t, GPU: e.Guest, Driver: chip.Attach(s.t, e.Socket, guest.Config{RAM: 4 << 20, Map: true})}
	s.clients = append(s.clients, c)
	for _, va := range []*uint64{&c.src, &c.dst} {
		var err error
		*va, err = c.MapVRAM(bufSize)
		require.NoError(s.t, err)
	}
	var err error
	c.ch, err = c.Open(1)
	require.NoError(s.t, err)
	require.NoError(s.t, c.ch.Copy(c.dst, c.src, lineSize))
	c.finish()
	return c
}

// request submits a copy of so many lines.
func (c *client) request(lines uint32) {
	c.t.Helper()
	c.sent++
	require.NoError(c.t, c.ch.Lines(c.dst, c.src, lineSize, lines))
}

// finish waits for all requests of the client's channel.
func (c *client) finish() {
	c.t.Helper()
	require.NoError(c.t, c.ch.Finish())
}

// lines returns how many lines take the card about d at this moment. The client must
// be alone on the card.
func (s *server) lines(c *client, d time.Duration) uint32 {
	s.t.Helper()
	for n := uint32(1); ; n *= 2 {
		before := s.used(c)[0]
		c.request(n)
		c.finish()
		var took time.Duration
		require.Eventually(s.t, func() bool { took = s.used(c)[0] - before; return s.idle() }, timeout, time.Millisecond)
		if took >= 10*time.Millisecond || n > endless/4 {
			return max(1, uint32(float64(n)*float64(d)/float64(took)))
		}
	}
}

// account is what a client had, what waits and what the card has of it.
func (s *server) account(c *client) (a sched.Account, waiting, inflight int) {
	return rig.Totals(s.Entry(c.GPU.Name()))
}

// used returns for how long engines have worked for each client.
func (s *server) used(clients ...*client) (out []time.Duration) {
	for _, c := range clients {
		a, _, _ := s.account(c)
		out = append(out, a.Busy)
	}
	return out
}

func (s *server) idle() bool {
	_, waiting, inflight := rig.Totals(s.Agg.Ledger()[0])
	return waiting+inflight == 0
}

// occupy gives the card a request that does not end, so that what others submit waits.
// The returned function takes it away.
func (s *server) occupy() (release func()) {
	s.t.Helper()
	hog := s.add("hog", sched.NodeConfig{Priority: 1}) // else it is paused when others wait
	hog.request(endless)
	s.onCard(hog)
	return func() { require.NoError(s.t, hog.ch.Close()) }
}

// onCard waits until the card has work of a client.
func (s *server) onCard(c *client) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { _, _, inflight := s.account(c); return inflight > 0 }, timeout, time.Millisecond)
}
