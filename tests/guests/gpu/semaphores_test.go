package gpu

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// TestSemaphoresLeaveNothingBehind: the check that has the semaphore stored a while later
// ends when that is done, though nothing waits for it: the next one has its page.
func TestSemaphoresLeaveNothingBehind(t *testing.T) {
	g := fake(t, "6.12")
	g.eager = true
	const hold = 20
	res, err := g.env().Semaphores(proto.SemaphoresArgs{Seed: 4, HoldMilliseconds: hold})
	require.Error(t, err)
	i := slices.IndexFunc(res.Checks, func(c proto.Check) bool { return c.Name == "non-stall interrupt" })
	require.GreaterOrEqual(t, i, 0)
	require.GreaterOrEqual(t, time.Duration(res.Checks[i].DurationNS), hold*time.Millisecond)
	require.True(t, res.Checks[i+1].OK, res.Checks[i+1].Error)
}
