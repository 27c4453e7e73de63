package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestLedger checks that the scheduler's ledger separates a stock kernel's own work from
// that of its processes. nouveau makes one or two channels for itself during its probe, in
// an address space of its own. Each process that opens the card has another one. The ledger
// keeps the work of processes that have ended.
func TestLedger(t *testing.T) {
	scale.ReleaseOnly(t)
	for _, k := range kernels {
		t.Run(k.Version, func(t *testing.T) { kernelLedger(t, k) })
	}
}

func kernelLedger(t *testing.T, k kernel) {
	cfg := sched.Default()
	b, s := virtual(t, testserver.SharedConfig{Card: soft.Config{VRAM: 1 << 30}, Limits: aggregator.Options{Scheduler: &cfg}},
		serve.GPUConfig{Share: aggregator.GuestConfig{VRAM: 512 << 20, Map: aperture.MapAll}}, lab.Config{Kernel: k.Version, CPUs: k.CPUs})

	// groups lists the guest's groups with their channels, and sums the work of ended groups.
	groups := func() (names []string, ended int64) {
		for _, e := range s.Agg.Ledger() {
			switch e.Depth {
			case 1:
				for _, a := range e.Past {
					ended += a.Done
				}
			case 2:
				names = append(names, e.Name)
			case 3:
				names[len(names)-1] += " " + e.Name
			}
		}
		return names, ended
	}
	b.probe(k)
	driver, _ := groups()
	require.Len(t, driver, 1)
	require.Regexp(t, fmt.Sprintf(`^kernel( channel \d+){%d}$`, k.driverChannels), driver[0])

	b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil)
	loaded, _ := groups()
	require.Len(t, loaded, 2)
	require.Equal(t, driver[0], loaded[0])
	require.Regexp(t, `^space-0x[0-9a-f]+ channel \d+`, loaded[1])
	var sum proto.LoadTotals
	b.call(proto.CmdLoadStop, nil, &sum)
	require.Eventually(t, func() bool {
		names, _ := groups()
		return slices.Equal(names, driver)
	}, callPatience, 10*time.Millisecond)
	_, ended := groups()
	require.GreaterOrEqual(t, ended, int64(sum.Copies))
}
