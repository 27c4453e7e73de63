package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestLedger checks that the scheduler's ledger separates a stock kernel's own work from
// that of its processes. nouveau makes one or two channels for itself during its probe, in
// an address space of its own. Each process that opens the card has another one. The ledger
// keeps the work of processes that have ended, and finds the kernel again after a reboot.
func TestLedger(t *testing.T) {
	scale.ReleaseOnly(t)
	for _, k := range kernels {
		t.Run(k.Version, func(t *testing.T) { kernelLedger(t, k) })
	}
}

func kernelLedger(t *testing.T, k kernel) {
	cfg := sched.Default()
	b, s := virtual(t, testserver.SharedConfig{Card: soft.Config{VRAM: 1 << 30}, Limits: aggregator.Options{Scheduler: &cfg}},
		aggregator.GuestConfig{VRAM: 512 << 20, Map: aperture.MapAll}, lab.Config{Kernel: k.Version, CPUs: k.CPUs, Reboot: true})

	// groups lists the guest's groups with their channels. done is the work of each
	// group by name, and that of ended groups.
	groups := func() (names []string, done map[string]int64) {
		done = make(map[string]int64)
		at := ""
		for _, e := range s.Agg.Ledger() {
			n := int64(0)
			for _, a := range e.Accounts {
				n += a.Done
			}
			switch e.Depth {
			case 1:
				for _, a := range e.Past {
					done["ended"] += a.Done
				}
			case 2:
				names, at = append(names, e.Name), e.Name
				done[at] = n
			case 3:
				names[len(names)-1] += " " + e.Name
			}
		}
		return names, done
	}
	driverGroup := fmt.Sprintf(`^kernel( channel \d+){%d}$`, k.driverChannels)
	b.sharedProbe(k)
	names, _ := groups()
	require.Len(t, names, 1)
	require.Regexp(t, driverGroup, names[0])
	kernel := names[0]

	b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil)
	require.Eventually(t, func() bool {
		now, done := groups()
		names = now
		return len(names) > 1 && done[strings.Fields(names[1])[0]] > 100
	}, callPatience, 10*time.Millisecond)
	require.Equal(t, kernel, names[0])
	require.Regexp(t, `^space-0x[0-9a-f]+ channel \d+`, names[1])
	process := names[1]

	b.call(proto.CmdM2MF, nil, nil) // another process, which ends
	names, _ = groups()
	require.Equal(t, []string{kernel, process}, names[:2])
	var sum proto.LoadTotals
	b.call(proto.CmdLoadStop, nil, &sum)
	require.Zero(t, sum.Wrong)
	require.Empty(t, sum.Error)
	require.Eventually(t, func() bool {
		names, _ := groups()
		return slices.Equal(names, []string{kernel})
	}, callPatience, 10*time.Millisecond)
	_, done := groups()
	require.GreaterOrEqual(t, done["ended"], int64(sum.Copies))

	require.NoError(t, b.VM.Reboot(b.ctx))
	b.sharedProbe(k)
	names, _ = groups()
	require.Len(t, names, 1)
	require.Regexp(t, driverGroup, names[0])
}
