package shadow

import "time"

// Bucket limits a rate, of table work or of a guest's errors: spending fills it, time empties it. The zero value is empty.
type Bucket struct {
	Level float64 // after the last Spend
	At    time.Time
}

// Spend adds n at time now.
func (b *Bucket) Spend(now time.Time, rate, n float64) {
	b.Level = max(0, b.Level-rate*now.Sub(b.At).Seconds()) + n
	b.At = now
}

// longestWait bounds one wait, so that no level overflows a Duration.
const longestWait = time.Hour

// Due returns how long to wait until the level is at most burst, but no more than
// an hour: the caller asks again after that.
func (b *Bucket) Due(now time.Time, rate, burst float64) time.Duration {
	over := b.Level - rate*now.Sub(b.At).Seconds() - burst
	seconds := min(max(0, over)/rate, longestWait.Seconds())
	return time.Duration(seconds * float64(time.Second))
}
