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

// counters are a server's Stats, except IRQ. Any goroutine counts, by add alone.
type counters struct{ Stats }

func add(counter *uint64, n uint64) { atomic.AddUint64(counter, n) }

// snapshot copies the counters one by one: a message that is counted meanwhile may be in some only.
func (c *counters) snapshot() (out Stats) {
	commands, refused := out.Commands, out.DMARefused
	for i := range commands {
		commands[i] = c.Commands[i].snapshot()
	}
	for i := range refused {
		refused[i] = atomic.LoadUint64(&c.DMARefused[i])
	}
	get := atomic.LoadUint64
	return Stats{ // without names, so that none can be forgotten
		commands, c.Unknown.snapshot(), get(&c.Receives), get(&c.Replies), get(&c.Writes), get(&c.Panics),
		get(&c.Clients), get(&c.BadStreams), get(&c.Refused), refused, IRQStats{},
	}
}

func (k *CommandStats) snapshot() CommandStats {
	get := atomic.LoadUint64
	return CommandStats{get(&k.Messages), get(&k.Bytes), get(&k.Posted), get(&k.Errors)}
}

func (c *counters) command(n wire.Command) *CommandStats {
	if int(n) >= len(c.Commands) {
		return &c.Unknown
	}
	return &c.Commands[n]
}
