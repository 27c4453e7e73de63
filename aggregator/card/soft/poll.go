package soft

import (
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Doorbells that the client writes without a trap. A channel's GP_PUT is in its
// USERD, where its PBDMA reads it when the channel is run: the bell only says that
// there is a reason to. So nothing is lost that is found late, and a bell that is
// found for nothing costs a look.

// startPoller starts who looks for them, if there can be any.
func (c *Card) startPoller() (err error) {
	if c.cfg.Map&homes.MapBAR1 != 0 || c.cfg.Doorbell == doorbell.Poll {
		c.poller, err = doorbell.New(c.cfg.Pace, doors{c}, &c.stats.Poller)
	}
	return err
}

func (c *Card) stopPoller() error {
	if c.poller == nil {
		return nil
	}
	return c.poller.Close()
}

// lookOut tells the poller that there may be something to look at.
func (c *Card) lookOut() {
	if c.fifo.polled {
		c.poller.Wake()
	}
}

// pollAreaAt notes where the poll area lies in BAR1, by NV_PFIFO_USERD_BASE.
func (c *Card) pollAreaAt(v uint32) {
	if c.windows == nil {
		return
	}
	f := &c.fifo
	f.astray = c.windows.PollArea(uint64(v&gf100.InstanceAddr)<<12, gf100.PollSize)
	f.polled = f.astray || c.windows.Doorbells()
	c.lookOut()
}

// doors is the card as its poller sees it.
type doors struct{ card *Card }

// Look implements doorbell.Doors.
func (d doors) Look() (rang, watched int) {
	c := d.card
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fifo.polled || !c.powered() {
		return 0, 0
	}
	for i := range c.fifo.slots {
		s := &c.fifo.slots[i]
		if s.ch == nil || !s.enabled {
			continue
		}
		watched++
		if c.fifo.news(s) {
			c.fifo.memoryChanged() // the guest may have written what another channel waits for
			c.fifo.ring(i)
			rang++
		}
	}
	return rang, watched
}

// news reports whether a channel's GP_PUT is another than when it was last read. What
// the PBDMA read counts too: it may have gone on by itself, and the ring has come round
// to where the last bell was.
func (f *fifo) news(s *slot) bool {
	if f.astray {
		if came, _ := f.card.windows.FreshWithin(homes.Unbounded, []uint64{s.ch.userd}); came != homes.Done {
			return false
		}
	}
	return f.put(s) != s.put
}

// put reads a channel's GP_PUT, before its PBDMA does. What is not in VRAM reads as 0:
// no window shows it.
func (f *fifo) put(s *slot) uint32 {
	mem := f.card.vram.slice(s.ch.userd, gf100.USERDSize)
	if mem == nil || s.ch.userdTarget != shadowpt.VRAM {
		return 0
	}
	return word(mem[gf100.USERDGPPut:])
}
