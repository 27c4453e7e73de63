package aggregator

import (
	"cmp"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/dma"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// MaxGuests is how many guests a card can tell apart. Options.Guests may be less.
const MaxGuests = dma.MaxGuests

// Options are an aggregator's limits and its scheduler. Zero values are the defaults.
type Options struct {
	// Guests is how many guests there may be at a time, 1 to 32; default 32. They share
	// the card's bus addresses: the card reaches the first 1 TiB / Guests of each guest's
	// memory, with Guests rounded up to a power of two.
	Guests int
	// ErrorBurst and ErrorRate bound how often a guest may stop the card's engines with
	// faults and errors: a burst, and a rate per second. Defaults 4096 and 512. A guest
	// beyond that is quarantined.
	ErrorBurst, ErrorRate float64
	// TableRate bounds the work on one guest's page tables, in bytes a second; one is about
	// a nanosecond of work. Default 512 MiB, half a processor. Beyond
	// it the guest's invalidates and submissions wait; unmapping memory does not.
	TableRate float64
	// Map bounds what a guest's mapped windows cost, if GuestConfig does not say so.
	Map aperture.Limits
	// Scheduler shares the card's time. If nil, work is forwarded immediately.
	Scheduler *sched.Config
	// Clock is the scheduler's time; nil is the time since New.
	Clock func() time.Duration
}

// complete fills in defaults.
func (o *Options) complete() {
	o.Guests = cmp.Or(o.Guests, MaxGuests)
	o.ErrorBurst = cmp.Or(o.ErrorBurst, 4096)
	o.ErrorRate = cmp.Or(o.ErrorRate, 512)
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
		{"error-rate", o.ErrorRate}, {"table-rate", o.TableRate},
	} {
		if !(f.value > 0) {
			return fmt.Errorf("limits.%s: %v: must be above 0", f.name, f.value)
		}
	}
	return nil
}

// GuestConfig is what a guest gets.
type GuestConfig struct {
	Name     string
	VRAM     uint64 // bytes, a multiple of 1 MiB
	Channels int    // how many it may have bound at a time; 0 means all
	// Guaranteed is how many of them are reserved for it; 0 is an even share for
	// Options.Guests guests.
	Guaranteed int
	// Tables is the memory for its shadow page tables in bytes, allocated when the guest
	// is added. Channels beyond the guaranteed have their instance blocks there, too. 0 is
	// DefaultTables.
	Tables uint64
	// Shadow is how its page tables are shadowed.
	Shadow shadowpt.Policy
	// Map says which windows its clients may map.
	Map       aperture.Map
	MapLimits aperture.Limits // the zero value is Options.Map
	// Share is its share of the card's time, with a scheduler.
	Share sched.NodeConfig
	// Group says which of its channels are one process for the scheduler.
	Group gate.Grouping
}

// Overhead bounds the card memory that the aggregator uses besides each guest's tables: instance
// blocks of guaranteed channels, runlists, USERD, and gaps because guests begin at large
// pages.
const Overhead = 8 << 20

// DefaultTables is the default memory for page tables: an eighth of VRAM in whole MiB, at
// least 8 MiB and at most 64 MiB.
func DefaultTables(vram uint64) uint64 {
	const least, most, mib = 8 << 20, 64 << 20, 1 << 20
	return min(max(vram/8&^(mib-1), least), most)
}

func (c *GuestConfig) complete(o *Options) error {
	c.Channels = cmp.Or(c.Channels, channels.Max)
	c.Guaranteed = cmp.Or(c.Guaranteed, min(channels.Max/o.Guests, c.Channels))
	c.Tables = vram.WholePages(cmp.Or(c.Tables, DefaultTables(c.VRAM)))
	if c.MapLimits == (aperture.Limits{}) {
		c.MapLimits = o.Map
	}
	switch {
	case c.VRAM == 0 || c.VRAM%(1<<20) != 0:
		return fmt.Errorf("%d bytes of VRAM: must be whole MiB", c.VRAM)
	case c.Channels < 1 || c.Channels > channels.Max:
		return fmt.Errorf("%d channels: must be 1 to %d", c.Channels, channels.Max)
	case c.Guaranteed < 1 || c.Guaranteed > c.Channels:
		return fmt.Errorf("%d guaranteed channels of %d: must be 1 to %d", c.Guaranteed, c.Channels, c.Channels)
	}
	return nil
}
