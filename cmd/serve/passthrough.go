package serve

import (
	"log/slog"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// NewPassThrough returns card c as a device. The card stays the caller's.
func NewPassThrough(c *soft.Card) *Device {
	return &Device{fn: c, maps: c, log: slog.New(slog.DiscardHandler), plug: func(h *hostSide) {
		if h == nil {
			c.DetachHost()
			return
		}
		c.AttachHost(h)
	}}
}
