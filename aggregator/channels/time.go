package channels

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// Busy is how long each engine worked.
type Busy [card.MaxEngines]time.Duration

// Add sums up.
func (b *Busy) Add(o Busy) {
	for i := range b {
		b[i] += o[i]
	}
}

// past is the engine time of channels that the card has unbound. Its lock is taken before
// Channels.mu and the card's: meanwhile no channel is unbound.
type past struct {
	mu   sync.Mutex
	busy Busy
}

// Busy returns how long each engine worked for the guest, by a card's meter. No lock is needed.
func (c *Channels) Busy(m card.Meter) Busy {
	c.past.mu.Lock()
	defer c.past.mu.Unlock()
	busy := c.past.busy
	c.mu.Lock()
	live := slices.Collect(maps.Keys(c.live))
	c.mu.Unlock()
	for _, ch := range live {
		if !ch.counted {
			busy.Add(m.Use(ch.card.ID()).Busy)
		}
	}
	return busy
}

// count adds the time of a channel that is about to be unbound, on a card whose time nobody else counts.
func (c *Channels) count(ch *Channel) {
	m := c.cfg.GPU.Meter()
	if m == nil || c.cfg.GPU.Slices() == nil {
		return
	}
	c.past.mu.Lock()
	defer c.past.mu.Unlock()
	c.past.busy.Add(m.Use(ch.card.ID()).Busy)
	ch.counted = true
}
