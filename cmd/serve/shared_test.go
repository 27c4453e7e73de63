package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestConfigurationThatFitsFits: the aggregator can allocate every configuration that
// package config accepts, to the last MiB, and Remove gives all of it back.
func TestConfigurationThatFitsFits(t *testing.T) {
	dir := t.TempDir()
	text := "card: {vram: 3GiB}\ngpus:\n"
	left := 3<<10 - int(aggregator.Overhead>>20)
	for i := range aggregator.MaxGuests {
		vram := 64 + i // odd sizes, so that holes do not match
		if i == aggregator.MaxGuests-1 {
			vram = left - 8
		}
		left -= vram + 8
		text += fmt.Sprintf("- {name: g%d, socket: %s, vram: %dMiB, channels: 128, guaranteed: 4, tables: 8MiB}\n", i, filepath.Join(dir, fmt.Sprint(i)), vram)
	}
	l := config.Default()
	require.NoError(t, l.Parse("f.yaml", []byte(text)))
	require.NoError(t, l.Check())

	c, err := soft.New(soft.Config{VRAM: uint64(l.Card.VRAM)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	s := share(t, c, Native, vfiouser.Options{}, aggregator.Options{})
	free := s.agg.Free()
	add := func(g *config.GPU) {
		s.add(aggregator.GuestConfig{
			Name: g.Name, VRAM: uint64(g.VRAM), Channels: g.Channels, Guaranteed: g.Guaranteed, Tables: uint64(g.Tables),
		})
	}
	for i := range l.GPUs {
		add(&l.GPUs[i])
	}
	for i := 0; i < len(l.GPUs); i += 2 { // make holes, and fill them in another order
		err := s.remove(l.GPUs[i].Name, false)
		require.NoError(t, err)
	}
	for i := len(l.GPUs) - 2; i >= 0; i -= 2 {
		add(&l.GPUs[i])
	}
	_, err = s.try(aggregator.GuestConfig{Name: "more", VRAM: testedVRAM})
	require.Error(t, err)
	require.NoFileExists(t, filepath.Join(s.dir, "more"))
	for _, g := range s.GPUs() {
		err := s.remove(g.Name, false)
		require.NoError(t, err)
	}
	require.Equal(t, free, s.agg.Free())
	require.Nil(t, s.Find("g0"))
}

// stuck is a transport whose client's thread does not end before free is closed.
type stuck struct {
	vfiouser.Transport
	listening func()
	free      chan struct{}
}

func (s stuck) ListenAndServe(ctx context.Context, _ string) error {
	s.listening()
	<-ctx.Done()
	return errors.Join(ctx.Err(), vfiouser.ErrStuck)
}

func (s stuck) Close() error {
	select {
	case <-s.free:
		return s.Transport.Close()
	case <-time.After(time.Millisecond):
		return vfiouser.ErrStuck
	}
}

// TestStuckClientDelaysNobody: a GPU whose client's thread does not end refuses clients, stays in the
// list, and goes once the thread has ended. Others are added and removed meanwhile.
func TestStuckClientDelaysNobody(t *testing.T) {
	free := make(chan struct{})
	by := func(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
		native, err := Native(d, o)
		return stuck{native, o.Listening, free}, err
	}
	s := share(t, newCard(t), by, vfiouser.Options{}, aggregator.Options{})
	s.add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM})
	err := s.remove("a", true)
	require.ErrorIs(t, err, vfiouser.ErrStuck)
	require.ErrorIs(t, s.Find("a").Device.Admit(), errRetired)
	s.by = Native
	s.add(aggregator.GuestConfig{Name: "b", VRAM: testedVRAM})
	err = s.remove("b", true)
	require.NoError(t, err)
	require.Len(t, s.GPUs(), 1)
	close(free)
	require.Eventually(t, func() bool { return len(s.GPUs()) == 0 }, patience, time.Millisecond)
}
