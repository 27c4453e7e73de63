package aggregator

import "time"

// leakyBucket limits a rate: spending fills it, time empties it.
type leakyBucket struct {
	level float64
	at    time.Time
}

// spend adds n at time now.
func (b *leakyBucket) spend(now time.Time, rate, n float64) {
	b.level = max(0, b.level-rate*now.Sub(b.at).Seconds()) + n
	b.at = now
}

// longestWait bounds one wait, so that no level overflows a Duration.
const longestWait = time.Hour

// due returns how long to wait until the level is at most burst, but no more than
// longestWait: the caller asks again after that.
func (b *leakyBucket) due(now time.Time, rate, burst float64) time.Duration {
	over := b.level - rate*now.Sub(b.at).Seconds() - burst
	seconds := min(max(0, over)/rate, longestWait.Seconds())
	return time.Duration(seconds * float64(time.Second))
}
