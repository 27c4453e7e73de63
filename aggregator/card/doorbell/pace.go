package doorbell

import (
	"fmt"
	"time"
)

// Pace bounds how long a doorbell waits to be found, and what looking may cost.
type Pace struct {
	Fast time.Duration // after another; 0 means 50 us
	Slow time.Duration // at any time; 0 means 50 ms
	Load int           // percent of one processor, which comes before the two above; 0 means 25
}

// Bounds of a Pace.
const (
	MinFast = 10 * time.Microsecond
	MaxSlow = time.Second
)

func (p Pace) withDefaults() Pace {
	if p.Fast == 0 {
		p.Fast = 50 * time.Microsecond
	}
	if p.Slow == 0 {
		p.Slow = 50 * time.Millisecond
	}
	if p.Load == 0 {
		p.Load = 25
	}
	return p
}

// Check says why a pace cannot be kept.
func (p Pace) Check() error {
	p = p.withDefaults()
	if p.Fast < MinFast || p.Slow > MaxSlow || p.Fast > p.Slow {
		return fmt.Errorf("doorbells looked for every %v to %v: possible are %v to %v, the first no longer than the second", p.Fast, p.Slow, MinFast, MaxSlow)
	}
	if p.Load < 1 || p.Load > 100 {
		return fmt.Errorf("doorbells looked for with %d %% of a processor: possible are 1 to 100", p.Load)
	}
	return nil
}

// patience: what is waited is this part of the time since the last ring.
const patience = 8

// cadence says when to look next. It is data; the clock is its caller's.
type cadence struct {
	rang time.Duration // when something last did, or was about to
}

// next returns how long to wait after a look that ended at now and took so long.
func (c *cadence) next(p Pace, now, took time.Duration, found bool) time.Duration {
	if found {
		c.rang = now
	}
	wait := min(max((now-c.rang)/patience, p.Fast), p.Slow)
	return max(wait, p.after(took))
}

// after is how long there is no look after one that took so long, whoever wants one.
func (p Pace) after(took time.Duration) time.Duration {
	return took * time.Duration(100-p.Load) / time.Duration(p.Load)
}
