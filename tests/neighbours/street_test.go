// Package neighbours puts guests that copy occasionally on a card with one guest that makes
// as much work as it can. It bounds the server's work for that guest, and checks that the
// others are not disturbed.
package neighbours

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	neighbours  = 7
	tableMemory = 4 << 20 // of each guest
	patience    = time.Minute
)

// street is a card with neighbours and a nuisance.
type street struct {
	*testserver.Shared
	neighbours []*neighbour
	nuisance   *guest.Guest
	endpoint   *testserver.Endpoint // the nuisance's
}

// newStreet makes a street of guests with these options. set, if not nil, changes limits.
func newStreet(t testing.TB, name string, set func(*aggregator.Options)) *street {
	t.Helper()
	c, err := options.Find(name)
	require.NoError(t, err)
	limits, err := c.Limits()
	require.NoError(t, err)
	if set != nil {
		set(&limits)
	}
	s := new(street)
	s.Shared, err = testserver.NewSharedWith(testserver.SharedConfig{Card: soft.Config{VRAM: 1 << 30}, Limits: limits})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for i := range neighbours + 1 {
		gpu, err := c.GPU(fmt.Sprintf("guest%d", i), 64<<20)
		require.NoError(t, err)
		gpu.Share.Tables = tableMemory
		endpoint, err := s.Add(gpu)
		require.NoError(t, err)
		g, err := guest.Attach(context.Background(), endpoint.Socket, guest.Config{RAM: 2 << 20, Map: c.Maps(), Timeout: patience})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		if i == 0 {
			s.nuisance, s.endpoint = g, endpoint
			continue
		}
		n := &neighbour{g: g, endpoint: endpoint}
		require.NoError(t, n.prepare(byte(i)))
		s.neighbours = append(s.neighbours, n)
	}
	return s
}

// beside runs f while the neighbours copy, and checks that none of them was disturbed.
func (s *street) beside(t *testing.T, f func() error) {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(s.neighbours)+1)
	for i, n := range s.neighbours {
		wg.Go(func() { errs[i] = n.live(stop.Load) })
	}
	errs[len(s.neighbours)] = f()
	stop.Store(true)
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, n := range s.neighbours {
		require.Empty(t, n.endpoint.Guest.QuarantineReason())
		for _, c := range n.endpoint.Guest.Stats().Counts() {
			if c.Rule || c.Name == "card_timeouts" {
				require.Zero(t, c.N, "%s: %s", n.endpoint.Guest.Name(), c.Name)
			}
		}
	}
}

// neighbour copies a little now and then, and checks its data.
type neighbour struct {
	g         *guest.Guest
	endpoint  *testserver.Endpoint
	ch        *guest.Channel
	src, back *guest.Buffer
}

const (
	srcVA, viaVA, backVA = 0x1000_0000, 0x1100_0000, 0x1200_0000
	copySize             = 16 << 10
	rest                 = 10 * time.Millisecond // so that the nuisance has most of the processors
)

func (n *neighbour) prepare(seed byte) error {
	space, err := n.g.NewSpace()
	if err != nil {
		return err
	}
	if n.src, err = n.g.AllocRAM(copySize); err != nil {
		return err
	}
	if n.back, err = n.g.AllocRAM(copySize); err != nil {
		return err
	}
	via, err := n.g.AllocVRAM(copySize)
	if err != nil {
		return err
	}
	for i := range n.src.Data {
		n.src.Data[i] = seed ^ byte(i*7)
	}
	if err := errors.Join(space.Map(srcVA, n.src, guest.Small), space.Map(viaVA, via, guest.Small), space.Map(backVA, n.back, guest.Small)); err != nil {
		return err
	}
	n.ch, err = n.g.NewChannelWith(1, space, guest.ChannelConfig{RingRAM: true, PushRAM: true})
	return err
}

// live copies until it is stopped, at least once.
func (n *neighbour) live(stop func() bool) error {
	for i := 0; ; i++ {
		clear(n.back.Data)
		e := guest.CopyEngines[i%len(guest.CopyEngines)]
		if err := errors.Join(n.ch.Copy(e, viaVA, srcVA, copySize), n.ch.Copy(e, backVA, viaVA, copySize), n.ch.Finish()); err != nil {
			return err
		}
		if !bytes.Equal(n.src.Data, n.back.Data) {
			return fmt.Errorf("%s: copy %d came back changed", n.endpoint.Guest.Name(), i)
		}
		if stop() {
			return nil
		}
		time.Sleep(rest)
	}
}
