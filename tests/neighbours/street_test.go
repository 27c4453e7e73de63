// Package neighbours puts guests that copy occasionally on a card with one guest that makes
// as much work as it can. It bounds the server's work for that guest, and checks that the
// others are not disturbed.
package neighbours

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	neighbours  = 7
	tableMemory = 4 << 20 // of each guest
	patience    = rig.Patience
)

// street is a card with neighbours and a nuisance.
type street struct {
	*rig.Rig
	neighbours []*rig.Copier // of the GPUs from the second on
	nuisance   *rig.Guest
}

// newStreet makes a street of guests with these options. set, if not nil, changes limits.
func newStreet(t *testing.T, name string, set func(*aggregator.Options)) *street {
	t.Helper()
	c, err := options.Find(name)
	require.NoError(t, err)
	var cfg testserver.SharedConfig
	cfg.Card.VRAM = 1 << 30
	cfg.Limits, err = c.Limits()
	require.NoError(t, err)
	if set != nil {
		set(&cfg.Limits)
	}
	s := &street{Rig: rig.New(t, cfg)}
	for i := range neighbours + 1 {
		gpu, err := c.GPU(fmt.Sprintf("guest%d", i), rig.VRAM)
		require.NoError(t, err)
		gpu.Share.Tables = tableMemory
		endpoint, client := s.AddWith(gpu), guest.Config{RAM: 2 << 20, Map: c.Maps()}
		if i == 0 {
			s.nuisance = s.Attach(endpoint, client)
			continue
		}
		n, err := rig.NewCopier(rig.Fermi, endpoint.Socket, client, i)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		s.neighbours = append(s.neighbours, n)
	}
	return s
}

// rest is how long neighbours rest, so that the nuisance has most of the processors.
const rest = 10 * time.Millisecond

// beside runs f while the neighbours copy, each at least once, and checks that none of them was disturbed.
func (s *street) beside(t *testing.T, f func() error) {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(s.neighbours)+1)
	for i, n := range s.neighbours {
		wg.Go(func() {
			for errs[i] = n.Copy(); errs[i] == nil && !stop.Load(); errs[i] = n.Copy() {
				time.Sleep(rest)
			}
		})
	}
	errs[len(s.neighbours)] = f()
	stop.Store(true)
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, e := range s.GPUs[1:] {
		require.Empty(t, e.Guest.QuarantineReason())
		for _, c := range e.Guest.Stats().Counts() {
			if c.Rule || c.Name == "card_timeouts" {
				require.Zero(t, c.N, "%s: %s", e.Guest.Name(), c.Name)
			}
		}
	}
}
