package vfiouser

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Stats is a snapshot of a server's counters since it was made.
type Stats struct {
	Commands [wire.NumCommands]CommandStats // by command number
	// Unknown are messages whose command has no row.
	Unknown CommandStats
	// BatchMax is the most messages that one read of the socket completed.
	BatchMax uint64
	// Blocked counts reads of the socket, which block until something arrives.
	Blocked uint64

	Replies    uint64 // messages sent, errors included
	Writes     uint64 // system calls that sent them
	Panics     uint64 // of the device, contained
	BadStreams uint64 // connections ended because of an impossible size
	Clients    uint64 // that negotiated a version
	Refused    uint64 // connections refused: a client was attached, or Device.Admit failed
	StrayReply uint64 // answers that match no request

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
	commands   [wire.NumCommands]commandCounters
	unknown    commandCounters
	batchMax   atomic.Uint64
	blocked    atomic.Uint64
	replies    atomic.Uint64
	writes     atomic.Uint64
	panics     atomic.Uint64
	badStreams atomic.Uint64
	clients    atomic.Uint64
	refused    atomic.Uint64
	strayReply atomic.Uint64

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

func (s *counters) snapshot() Stats {
	out := Stats{
		Unknown:    s.unknown.snapshot(),
		BatchMax:   s.batchMax.Load(),
		Blocked:    s.blocked.Load(),
		Replies:    s.replies.Load(),
		Writes:     s.writes.Load(),
		Panics:     s.panics.Load(),
		BadStreams: s.badStreams.Load(),
		Clients:    s.clients.Load(),
		Refused:    s.refused.Load(),
		StrayReply: s.strayReply.Load(),

		RegionsRefused:  s.regionsRefused.Load(),
		MappingsRefused: s.mappingsRefused.Load(),
		SizesRefused:    s.sizesRefused.Load(),
	}
	for i := range s.commands {
		out.Commands[i] = s.commands[i].snapshot()
	}
	return out
}
