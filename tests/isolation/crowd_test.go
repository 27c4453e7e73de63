package isolation

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	crowdSize   = aggregator.MaxGuests
	crowdCopies = 12
)

// chipOf is the chip of guest i of the crowd: one in four is a GH100.
func chipOf(i int) rig.Chip { return rig.Chips[(i+1)%4/3] }

// TestCrowd has as many guests as a card takes, of both chips, copy verified data in parallel, by fences and interrupts,
// while some reset their device, and some disconnect in the middle and attach again.
func TestCrowd(t *testing.T) {
	before := openFiles(t)
	w := new(Ward)
	var err error
	w.Shared, err = testserver.NewSharedWith(testserver.SharedConfig{Card: soft.Config{VRAM: 40 << 30, Watch: w.watch}})
	require.NoError(t, err)
	for i := range crowdSize {
		chip := chipOf(i)
		_, err := w.Add(serve.GPUConfig{Share: aggregator.GuestConfig{Name: fmt.Sprintf("guest%d", i), VRAM: chip.VRAM, Map: aperture.MapAll}, Device: chip.Device})
		require.NoError(t, err)
		w.own(w.GPUs[i].Guest)
	}
	_, err = w.Agg.AddGuest(aggregator.GuestConfig{Name: "one more", VRAM: 1 << 20, Channels: 1}, noFace{})
	require.ErrorContains(t, err, "limit of 32 guests")
	free := w.Agg.Free()
	var living sync.WaitGroup
	for i := range crowdSize {
		living.Go(func() { assert.NoError(t, w.live(i), "guest %d", i) })
	}
	living.Wait()
	require.Empty(t, w.found)
	for i, s := range w.GPUs {
		require.Empty(t, s.Guest.QuarantineReason())
		for _, c := range s.Guest.Stats().Counts() {
			if i%3 == 2 && c.Name == "foreign_entries" {
				continue // its memory was unmapped while its tables named it
			}
			if c.Rule || c.Name == "card_timeouts" || c.Name == "pbdma_errors" {
				require.Zero(t, c.N, "%s: %s", s.Guest.Name(), c.Name)
			}
		}
	}
	require.Equal(t, free, w.Agg.Free())
	require.NoError(t, w.Close())
	require.LessOrEqual(t, openFiles(t), before) // what an earlier test left may be gone
}

// live runs one guest. One third resets in the middle, another disconnects during copies
// and attaches again.
func (w *Ward) live(i int) error {
	v, err := copier(chipOf(i), w.GPUs[i], i)
	if err != nil {
		return err
	}
	for n := range crowdCopies {
		if n == crowdCopies/2 {
			if v, err = w.interrupted(i, v); err != nil {
				return err
			}
		}
		if err := v.Copy(); err != nil {
			return errors.Join(fmt.Errorf("copy %d: %w", n, err), v.Close())
		}
	}
	if v.Fill(); v.Check() == nil {
		err = errors.New("data that nobody copied is there")
	}
	return errors.Join(err, v.Ch.Close(), v.Close())
}

func (w *Ward) interrupted(i int, v *rig.Copier) (*rig.Copier, error) {
	switch i % 3 {
	case 0:
		return v, nil
	case 1:
		return v, errors.Join(v.Ch.Copy(v.Via, v.Src, rig.CopySize), v.Reset(), v.Prepare())
	}
	var err error
	for range 8 {
		err = errors.Join(err, v.Ch.Copy(v.Via, v.Src, rig.CopySize))
	}
	if err = errors.Join(err, v.Close()); err != nil {
		return nil, err
	}
	return copier(chipOf(i), w.GPUs[i], i)
}

// copier attaches a guest that copies to a GPU.
func copier(chip rig.Chip, e *testserver.Endpoint, seed int) (*rig.Copier, error) {
	return rig.NewCopier(chip, e.Socket, guest.Config{RAM: 2 << 20, Map: true}, seed)
}

// openFiles counts open descriptors, after those that the first server of a process opens for all.
func openFiles(t *testing.T) int {
	s, err := testserver.NewSharedWith(testserver.SharedConfig{Card: soft.Config{VRAM: 2 * soft.MinVRAM}})
	require.NoError(t, err)
	_, err = s.Add(serve.GPUConfig{Share: aggregator.GuestConfig{Name: "first", VRAM: soft.MinVRAM}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
