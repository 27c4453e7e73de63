package serve

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel"
)

func TestVirtualBuilds(t *testing.T) {
	c, err := soft.New(soft.Config{VRAM: 256 << 20})
	require.NoError(t, err)
	defer c.Close()
	a, err := aggregator.New(c)
	require.NoError(t, err)
	v, err := devmodel.New(devmodel.Config{}, 64<<20)
	require.NoError(t, err)
	g, err := a.AddGuest(aggregator.GuestConfig{Name: "a", VRAM: 64 << 20}, v)
	require.NoError(t, err)
	v.Connect(g)
	require.NoError(t, g.Remove())
	v.Close()
	require.NoError(t, a.Close())
}
