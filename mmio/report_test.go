package mmio

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reported is a small space with a history, on a clock that the history drives.
func reported(t *testing.T) *Space {
	s := smallSpace(t)
	var clock, cost int64
	s.clock, s.clockCost = func() int64 { clock += cost; return clock }, 0
	access := func(times int, nanos int64, f func()) {
		cost = nanos
		for range times {
			f()
		}
	}
	access(12_345, 30, func() { s.Read32(0x1400) })
	access(3, 2_500_000, func() { s.Write32(0x200, 1) })
	access(1, 400, func() { s.Read32(0) })
	access(2, 400, func() { s.Write32(0, 1) })
	access(20, 15, func() { s.Write(0x210, []byte{1}) })
	access(1_000, 90, func() { s.Write32(0x3000, 1) })
	access(7, 0, func() { s.Read32(0x104) })
	access(2, 0, func() { s.Write32(0x108, 1) })
	access(1, 0, func() { s.Read32(0x2000) })
	access(1, 0, func() { s.Read(0x1420, make([]byte, 3)) })
	access(1, 0, func() { s.Read32(0x4000) })
	return s
}

func TestReport(t *testing.T) {
	s := reported(t)
	r := s.Report()
	require.Equal(t, []BlockCount{
		{Name: "PTIMER", Rows: 2, Reads: 12_346, Time: 12_345 * 30},
		{Name: "PRAMIN", Rows: 1, Writes: 1_000, Time: 90_000},
		{Name: "PMC", Rows: 3, Reads: 1, Writes: 25, Time: 3*2_500_000 + 3*400 + 20*15},
	}, r.Blocks)
	var names []string
	var sum time.Duration
	for _, c := range r.Rows {
		names = append(names, c.Name)
		sum += c.Time
	}
	require.Equal(t, []string{"NV_PTIMER_TIME_0", "PRAMIN", "NV_PMC_DEBUG", "NV_PMC_BOOT_0", "NV_PMC_ENABLE", "NV_PTIMER_ALARM"}, names)
	require.Equal(t, sum, r.Time)
	require.EqualValues(t, 12_347, r.Reads)
	require.EqualValues(t, 1_025, r.Writes)
	require.Len(t, r.Stubs, 1)
	require.Equal(t, "NV_PMC_DEBUG", r.Stubs[0].Name)
	require.Equal(t, s.Missed(), r.Missed)
	short := r
	short.Missed.Holes = nil
	require.Equal(t, short, s.Summary())
}

// TestReportWhileAccessesRun: one goroutine accesses under the owner's lock, another reads the
// counters without it. For the race detector.
func TestReportWhileAccessesRun(t *testing.T) {
	s := smallSpace(t)
	const rounds = 3000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint32(rounds) {
			for _, off := range []uint32{0x104, 0x108, 0x1428, 0x200, 0x500 + i%256*4} {
				s.Write32(off, off)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		s.Report()
	}
	require.EqualValues(t, rounds, s.Counts()[0].Writes)
}
