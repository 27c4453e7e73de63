package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// TestBooks: what the scheduler takes for a stock kernel's own work and for its
// processes is that. nouveau makes one channel for itself while it probes, or two (6.1, the
// second one for copies), in an address space of its own, which is found before any process can have one; each process that
// opens the card has another. What processes had stays in the books when they have gone,
// and after a reboot the kernel is found again.
func TestBooks(t *testing.T) {
	labtest.Need(t)
	for _, version := range lab.Kernels {
		t.Run(version, func(t *testing.T) { kernelBooks(t, version) })
	}
}

func kernelBooks(t *testing.T, version string) {
	machines <- struct{}{}
	t.Cleanup(func() { <-machines })
	cfg := sched.Default()
	s, err := stand.NewSharedWith(stand.SharedConfig{Card: soft.Config{VRAM: 1 << 30}, Limits: aggregator.Options{Scheduler: &cfg}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.AddGPU(aggregator.GuestConfig{Name: "gpu", VRAM: 512 << 20, Map: homes.MapAll}))
	vm, err := lab.Start(t.Context(), lab.Config{Kernel: version, CPU: "max", CPUs: kernelOf(version).CPUs, Sockets: []string{s.GPUs[0].Socket}, Reboot: true})
	require.NoError(t, err)
	t.Attr("kernel", vm.Kernel()+" under "+vm.Accel().Name)
	t.Cleanup(func() { require.NoError(t, vm.Close()) })
	b := &bed{&stand.Stand{Card: s.Card, VM: vm}, t, t.Context()}

	// groups are the guest's, with their channels; done is what each has had done, by name,
	// and what those had that are gone.
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
					done["gone"] += a.Done
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
	own := fmt.Sprintf(`^kernel( channel \d+){%d}$`, kernelOf(version).own)
	b.sharedProbe(kernelOf(version))
	names, done := groups()
	t.Logf("after the probe: %v, %v", names, done)
	require.Len(t, names, 1)
	require.Regexp(t, own, names[0])
	kernel := names[0]

	b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil)
	require.Eventually(t, func() bool {
		names, done = groups()
		return len(names) > 1 && done[strings.Fields(names[1])[0]] > 100
	}, time.Minute, 10*time.Millisecond)
	t.Logf("with a process that copies: %v, %v", names, done)
	require.Equal(t, kernel, names[0])
	require.Regexp(t, `^space-0x[0-9a-f]+ channel \d+`, names[1])
	process := names[1]

	b.call(proto.CmdM2MF, proto.CopyArgs{Quick: true}, nil) // another process, for a moment
	names, done = groups()
	t.Logf("and another that came: %v, %v", names, done)
	require.Equal(t, []string{kernel, process}, names[:2])
	var sum proto.LoadTotals
	b.call(proto.CmdLoadStop, nil, &sum)
	require.Zero(t, sum.Wrong)
	require.Empty(t, sum.Error)
	require.Eventually(t, func() bool {
		names, done = groups()
		return fmt.Sprint(names) == fmt.Sprint([]string{kernel})
	}, time.Minute, 10*time.Millisecond, "%v", names)
	t.Logf("when they have gone: %v, %v", names, done)
	require.GreaterOrEqual(t, done["gone"], int64(sum.Copies), "what processes had is not forgotten")

	require.NoError(t, vm.Reboot(b.ctx))
	b.sharedProbe(kernelOf(version))
	names, done = groups()
	t.Logf("after a reboot: %v, %v", names, done)
	require.Len(t, names, 1)
	require.Regexp(t, own, names[0])
}
