package vfiouser

import (
	"sync"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Stats is a snapshot of a server's counters since it was made.
type Stats struct {
	Commands [wire.NumCommands]CommandStats // by command number
	// Unknown are messages whose command has no row.
	Unknown CommandStats
	// Receives counts reads of the socket, which block until something arrives.
	Receives uint64

	Replies    uint64 // messages sent, errors included
	Writes     uint64 // system calls that sent them
	Panics     uint64 // of the device, contained
	Clients    uint64 // that negotiated a version
	BadStreams uint64 // connections ended because of an impossible size

	Refused uint64 // connections refused: a client was attached, or Device.Admit failed

	DMARefused [numDMARules]uint64 // by rule

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

// counters are a server's Stats, except IRQ. Any goroutine counts.
type counters struct {
	mu    sync.Mutex
	stats Stats
}

func (c *counters) count(add func(s *Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.stats)
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (s *Stats) command(c wire.Command) *CommandStats {
	if int(c) >= len(s.Commands) {
		return &s.Unknown
	}
	return &s.Commands[c]
}
