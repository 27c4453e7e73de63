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
	// From half of them on the server maps whole files, whose ranges then share one mapping. The
	// kernel limits a process to vm.max_map_count mappings; without any left, its heap cannot
	// grow. The clients of all servers together must leave most of them.
	MaxDMAMappings int
	// MaxDMAMemory bounds the sum of these mappings, in bytes of addresses; 0 means 1 TiB. A
	// process has 128 TiB; without any left, its heap cannot grow. The clients of all servers
	// together must leave most of them.
	MaxDMAMemory uint64
	// MaxDMAAlloc bounds the memory that accesses of the device allocate in files of clients, for the
	// life of the server, in bytes; 0 means no bound. A sparse file gets a page when it is first
	// touched. The kernel charges the page to the control group of the process that touched it, for
	// as long as the file keeps it, also when the client has ended. With a bound, watchers must call
	// MemoryChange.Populate before each access. Pages of hugetlbfs are not bounded: they come from
	// the machine's pool. Nor are those of AnyDMAFile. Needs userfaultfd; NewServer fails without it.
	MaxDMAAlloc uint64
	// AnyDMAFile takes descriptors of any file for the client's memory. Without it these are
	// memfds, tmpfs and hugetlbfs. With it the client can choose a file system, such as FUSE,
	// that never answers: each thread that touches such memory, or its descriptor, then waits for
	// ever, and with it whatever waits for that thread, such as a garbage collection.
	AnyDMAFile bool
	// DMATimeout is how long a DMA message may stay unanswered; 0 means 5 s.
	DMATimeout time.Duration
	// EndTimeout is how long the server waits for the end of a client's thread, or for the next
	// range of the client's map to be freed, before it returns ErrStuck; 0 means 1 s. It waits once
	// more for each 512 MiB of the map, up to 64 times. The device's Detached does not count.
	EndTimeout time.Duration
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
	if o.MaxDMAMemory == 0 {
		o.MaxDMAMemory = 1 << 40
	}
	if o.DMATimeout == 0 {
		o.DMATimeout = 5 * time.Second
	}
	if o.EndTimeout == 0 {
		o.EndTimeout = time.Second
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
