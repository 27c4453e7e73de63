package vfiouser

import (
	"math/bits"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// BatchBuckets is the number of classes of Stats.BatchSizes.
const BatchBuckets = 12

// Stats is a snapshot of a server's counters since it was made.
type Stats struct {
	Commands [wire.NumCommands]CommandStats // by command number
	// Unknown are messages whose command has no row.
	Unknown CommandStats
	// BatchSizes counts reads of the socket by how many messages they completed: class n
	// holds 2^n to 2^(n+1)-1, the last one all larger.
	BatchSizes [BatchBuckets]uint64
	BatchMax   uint64
	// Blocked counts reads of the socket, which block until something arrives.
	Blocked uint64

	Replies     uint64 // messages sent, errors included
	BytesOut    uint64
	Writes      uint64 // system calls that sent them
	Panics      uint64 // of the device, contained
	BadStreams  uint64 // connections ended because of an impossible size
	Clients     uint64 // that negotiated a version
	Refused     uint64 // connections refused: a client was attached, or Device.Admit failed
	StrayReply  uint64 // answers that match no request
	FDsReceived uint64

	RegionsRefused  uint64 // DMA_MAPs beyond Options.MaxDMARegions
	MappingsRefused uint64 // and beyond Options.MaxDMAMappings
	SizesRefused    uint64 // and larger than Options.MaxDMASize

	IRQ IRQStats // of the present or last client
}

// CommandStats count one command: what the client sent, or of DMA_READ and DMA_WRITE what the
// server sent.
type CommandStats struct {
	Messages uint64
	Bytes    uint64 // headers included; of DMA_READ and DMA_WRITE both ways
	Posted   uint64 // of Messages, those without a reply
	Errors   uint64 // of Messages, those that failed
}

type counters struct {
	commands    [wire.NumCommands]commandCounters
	unknown     commandCounters
	batches     [BatchBuckets]atomic.Uint64
	batchMax    atomic.Uint64
	blocked     atomic.Uint64
	replies     atomic.Uint64
	bytesOut    atomic.Uint64
	writes      atomic.Uint64
	panics      atomic.Uint64
	badStreams  atomic.Uint64
	clients     atomic.Uint64
	refused     atomic.Uint64
	strayReply  atomic.Uint64
	fdsReceived atomic.Uint64

	regionsRefused, mappingsRefused, sizesRefused atomic.Uint64
}

type commandCounters struct {
	messages, bytes, posted, errors atomic.Uint64
}

func (c *commandCounters) snapshot() CommandStats {
	return CommandStats{c.messages.Load(), c.bytes.Load(), c.posted.Load(), c.errors.Load()}
}

func (s *counters) command(c wire.Command) *commandCounters {
	if int(c) >= len(s.commands) {
		return &s.unknown
	}
	return &s.commands[c]
}

func (s *counters) count(c wire.Command, bytes uint64) {
	k := s.command(c)
	k.messages.Add(1)
	k.bytes.Add(bytes)
}

func (s *counters) batch(n uint64) {
	s.batches[min(bits.Len64(n)-1, BatchBuckets-1)].Add(1)
	if n > s.batchMax.Load() { // the connection's thread alone writes
		s.batchMax.Store(n)
	}
}

func (s *counters) sent(messages uint64, bytes int) {
	s.replies.Add(messages)
	s.bytesOut.Add(uint64(bytes))
	s.writes.Add(1)
}

func (s *counters) snapshot() Stats {
	out := Stats{
		Unknown:     s.unknown.snapshot(),
		BatchMax:    s.batchMax.Load(),
		Blocked:     s.blocked.Load(),
		Replies:     s.replies.Load(),
		BytesOut:    s.bytesOut.Load(),
		Writes:      s.writes.Load(),
		Panics:      s.panics.Load(),
		BadStreams:  s.badStreams.Load(),
		Clients:     s.clients.Load(),
		Refused:     s.refused.Load(),
		StrayReply:  s.strayReply.Load(),
		FDsReceived: s.fdsReceived.Load(),

		RegionsRefused:  s.regionsRefused.Load(),
		MappingsRefused: s.mappingsRefused.Load(),
		SizesRefused:    s.sizesRefused.Load(),
	}
	for i := range s.commands {
		out.Commands[i] = s.commands[i].snapshot()
	}
	for i := range s.batches {
		out.BatchSizes[i] = s.batches[i].Load()
	}
	return out
}
