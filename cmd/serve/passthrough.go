package serve

import (
	"log/slog"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// NewPassThrough returns card c as a device. The card stays the caller's. What it
// holds stays for the next client, who is refused as long as the last one could still
// reach it.
func NewPassThrough(c *soft.Card) *Device {
	return &Device{fn: c, maps: c, shown: &c.Stats().Windows, log: slog.New(slog.DiscardHandler), admit: c.CloseWindows, plug: func(h *hostSide) {
		if h == nil {
			c.DetachHost()
			return
		}
		c.AttachHost(h)
	}}
}
