package aggregator

import (
	"cmp"
	"fmt"
	"time"
)

// complete fills in defaults.
func (o *Options) complete() {
	o.Guests = cmp.Or(o.Guests, MaxGuests)
	o.CardTimeout = cmp.Or(o.CardTimeout, time.Second/2)
	o.UnmapTimeout = cmp.Or(o.UnmapTimeout, 3*time.Second/2)
	o.ErrorBurst = cmp.Or(o.ErrorBurst, 4096)
	o.ErrorRate = cmp.Or(o.ErrorRate, 512)
	o.InterruptBurst = cmp.Or(o.InterruptBurst, 64)
	o.InterruptPause = cmp.Or(o.InterruptPause, time.Millisecond)
	o.InvalidateDirs = cmp.Or(o.InvalidateDirs, 32)
	o.TableRate = cmp.Or(o.TableRate, 512<<20)
}

// check returns an error for an invalid limit, named as in the configuration
// names it. Map and Scheduler are checked by their packages.
func (o *Options) check() error {
	if o.Guests < 1 || o.Guests > MaxGuests {
		return fmt.Errorf("limits.guests: %d: must be 1 to %d", o.Guests, MaxGuests)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"card-timeout", float64(o.CardTimeout)}, {"unmap-timeout", float64(o.UnmapTimeout)},
		{"error-burst", o.ErrorBurst}, {"error-rate", o.ErrorRate},
		{"interrupt-burst", float64(o.InterruptBurst)}, {"interrupt-pause", float64(o.InterruptPause)},
		{"invalidate-dirs", float64(o.InvalidateDirs)}, {"table-rate", o.TableRate},
	} {
		if !(f.value > 0) {
			return fmt.Errorf("limits.%s: %v: must be above 0", f.name, f.value)
		}
	}
	return nil
}
