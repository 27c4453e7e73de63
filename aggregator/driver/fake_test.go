package driver

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = time.Minute // for what comes at all
	tick     = time.Millisecond
)

// newDriver makes a driver of a card.
func newDriver(t *testing.T, c card.Registers, o Options) *Driver {
	t.Helper()
	d, err := New(c, o)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func newShare(t *testing.T, d *Driver, number, guaranteed int) *share {
	t.Helper()
	s, err := d.NewShare(card.ShareConfig{Number: number, Channels: gf100.Channels, Guaranteed: guaranteed, Tables: 1 << 20})
	require.NoError(t, err)
	return s.(*share)
}

// spaceAt is a space with its directory somewhere.
func spaceAt(dir uint64) *space { return &space{root: &table{addr: dir}} }

// running makes a channel that may run.
func running(t *testing.T, s *share) (*channel, *recorder) {
	t.Helper()
	ev := &recorder{}
	ch, err := s.NewChannel(card.ChannelConfig{Space: spaceAt(s.runs[0].Addr)}, ev)
	require.NoError(t, err)
	require.True(t, s.Commit())
	ch.Enable()
	return ch.(*channel), ev
}

// end ends a channel.
func end(t *testing.T, ch *channel) {
	t.Helper()
	ch.Disable()
	left, _ := ch.Stop(true)
	require.True(t, left)
	ch.Unbind()
	ch.Free()
}

// recorder records what the card reports of a channel.
type recorder struct {
	mu      sync.Mutex
	engines []card.EngineSet
	errors  []card.Fault
}

func (r *recorder) Fault(f card.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, f)
}

func (r *recorder) Completed(engines card.EngineSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engines = append(r.engines, engines)
}

// events returns how many engine events came, and the errors.
func (r *recorder) events() (int, []card.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.engines), r.errors
}
