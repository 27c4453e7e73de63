package aggregator

import (
	"cmp"
	"fmt"
	"time"
)

// complete gives the limits that nobody said their defaults.
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

// check says what of completed options cannot be. Pace, Map and Scheduler are
// checked by those whose they are.
func (o *Options) check() error {
	if o.Guests < 1 || o.Guests > MaxGuests {
		return fmt.Errorf("%d guests: 1 to %d are possible", o.Guests, MaxGuests)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"CardTimeout", float64(o.CardTimeout)}, {"UnmapTimeout", float64(o.UnmapTimeout)},
		{"ErrorBurst", o.ErrorBurst}, {"ErrorRate", o.ErrorRate},
		{"InterruptBurst", float64(o.InterruptBurst)}, {"InterruptPause", float64(o.InterruptPause)},
		{"InvalidateDirs", float64(o.InvalidateDirs)}, {"TableRate", o.TableRate},
	} {
		if !(f.value > 0) {
			return fmt.Errorf("option %s: %v is not above zero", f.name, f.value)
		}
	}
	return nil
}
