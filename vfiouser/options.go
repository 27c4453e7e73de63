package vfiouser

import (
	"log/slog"
	"time"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Options are a server's limits and switches. The zero value is good.
type Options struct {
	// MaxDataXfer is the most data of one message, in bytes; 0 means 1 MiB. At most 64 MiB,
	// the most QEMU accepts.
	MaxDataXfer uint32
	// MaxDMARegions bounds the DMA map; 0 means 65535, the most QEMU accepts.
	MaxDMARegions int
	// MaxDMAMappings bounds how many mappings of this process the DMA map takes; 0 means 128.
	// All ranges of one file share one, so a guest of any size needs a few. The kernel limits
	// a process to vm.max_map_count mappings; without any left, its heap cannot grow. The
	// clients of all servers together must leave most of them.
	MaxDMAMappings int
	// MaxDMASize bounds one DMA region, in bytes; 0 means 8 TiB.
	MaxDMASize uint64
	// DMATimeout is how long a DMA message may stay unanswered; 0 means 5 s.
	DMATimeout time.Duration
	// NoWriteMulti does not offer REGION_WRITE_MULTI. QEMU 10.1 and 10.2 become slower when
	// it is offered.
	NoWriteMulti bool
	// Listening, if not nil, is called by ListenAndServe when the socket takes clients.
	Listening func()
	// Log receives panics, broken streams and exceeded limits, limited in rate; nil disables it.
	Log *slog.Logger
}

// maxMsgFDs is how many descriptors one message may carry. QEMU refuses more than 16.
const maxMsgFDs = 16

const maxMaxDataXfer = 64 << 20

func (o Options) withDefaults() Options {
	if o.MaxDataXfer == 0 {
		o.MaxDataXfer = wire.DefaultMaxDataXfer
	}
	o.MaxDataXfer = min(o.MaxDataXfer, maxMaxDataXfer)
	if o.MaxDMARegions == 0 {
		o.MaxDMARegions = 65535
	}
	o.MaxDMARegions = min(o.MaxDMARegions, 65535)
	if o.MaxDMAMappings == 0 {
		o.MaxDMAMappings = 128
	}
	if o.MaxDMASize == 0 || o.MaxDMASize > maxMmap {
		o.MaxDMASize = maxMmap
	}
	if o.DMATimeout == 0 {
		o.DMATimeout = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// maxMessage is the longest message taken in: the most data, the access header and the
// message header.
func (o *Options) maxMessage() uint32 {
	return o.MaxDataXfer + wire.HeaderSize + wire.RegionAccessSize
}
