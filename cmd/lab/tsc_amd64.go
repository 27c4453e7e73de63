package lab

import (
	"sync"
	"time"
)

func rdtsc() uint64

// tscKHz measures this machine's time stamp counter, which TCG shows to its guests. A
// guest that calibrates it while the host is busy may find a frequency that is many
// times wrong.
var tscKHz = sync.OnceValue(func() int {
	at, ticks := tscSample()
	time.Sleep(20 * time.Millisecond)
	at2, ticks2 := tscSample()
	return int(float64(ticks2-ticks) / float64(at2.Sub(at)) * 1e6)
})

// tscSample reads the clock and the counter at nearly the same moment: the best of some
// tries, because the host may deschedule this thread between two reads.
func tscSample() (at time.Time, ticks uint64) {
	best := time.Hour
	for range 10 {
		before := time.Now()
		t := rdtsc()
		if d := time.Since(before); d < best {
			best, at, ticks = d, before, t
		}
	}
	return at, ticks
}
