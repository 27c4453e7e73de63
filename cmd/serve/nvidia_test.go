package serve

import (
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// slicedGPU is the software card as one that shares its engines itself.
type slicedGPU struct {
	card.GPU
	weights map[float64]bool
}

func (s slicedGPU) Slices() card.Slices                     { return s }
func (s slicedGPU) SetWeight(_ card.Share, w float64) error { s.weights[w] = true; return nil }

// TestSlicedCard: the commands show and change weights of a card that shares its engines itself, and refuse
// what only a scheduler does. Its memory bounds its GPUs from the start of the server on.
func TestSlicedCard(t *testing.T) {
	plan := func(vram string) *Plan {
		o := config.Default()
		require.NoError(t, o.AddGPU("--gpu", "name=a,weight=250,vram="+vram+",socket="+filepath.Join(t.TempDir(), "a.sock")))
		require.NoError(t, o.Parse("f.yaml", []byte("card: {kind: nvidia}\n")))
		require.NoError(t, o.Check())
		p, err := NewPlan(o, false, slog.New(slog.NewTextHandler(io.Discard, nil)))
		require.NoError(t, err)
		_, err = NewPlan(o, true, nil)
		require.ErrorContains(t, err, "card.kind: nvidia: such a card is shared")
		c, err := soft.New(soft.Config{VRAM: 5 << 30})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		p.nvidia = func() (card.GPU, error) {
			gpu, err := driver.New(c, driver.Options{})
			return slicedGPU{gpu, make(map[float64]bool)}, err
		}
		return p
	}
	_, err := plan("8GiB").Start(nil)
	require.ErrorContains(t, err, "vram: 8GiB: does not fit")
	s, err := plan("4GiB").Start(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()

	_, err = s.Set("a", api.SetRequest{Options: "weight=50"})
	require.NoError(t, err)
	_, err = s.Set("a", api.SetRequest{Options: "cap=50"})
	require.ErrorContains(t, err, "cap: 50: has no effect: this card shares its engines by weight alone")
	show, err := s.Show("a")
	require.NoError(t, err)
	var keys []string
	for _, o := range show.Settings {
		keys = append(keys, o.Key)
	}
	require.Contains(t, keys, "weight")
	require.NotContains(t, keys, "cap")
	now, err := s.Scheduler()
	require.NoError(t, err)
	require.Equal(t, []any{"slices", []api.Share{{Name: "a", Weight: 50}}}, []any{now.Policy, now.Shares})
	_, err = s.SetScheduler(api.SetRequest{Options: "policy=band"})
	require.ErrorContains(t, err, "by the weights of its GPUs alone")
	status, err := s.Status()
	require.NoError(t, err)
	require.Equal(t, []any{"nvidia", "slices", "a", 50}, []any{status.Card.Kind, status.Card.Policy, status.Card.Ledger.Children[0].Name, status.GPUs[0].CardTime.Weight})
	require.Greater(t, status.Card.VRAM, uint64(4<<30))
	_, err = s.Report()
	require.NoError(t, err)
}
