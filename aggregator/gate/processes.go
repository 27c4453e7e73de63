package gate

import (
	"fmt"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Grouping is which channels of a guest are one group in the scheduler's tree. The groups of a
// guest share equally what the guest gets.
type Grouping uint8

// The groupings.
const (
	BySpace   Grouping = iota // channels of one address space: one process
	ByChannel                 // each channel
	ByGuest                   // all channels, which take turns of one request
	groupings
)

var groupingNames = [groupings]string{"space", "channel", "guest"}

// Groupings returns the names of the groupings.
func Groupings() []string { return append([]string(nil), groupingNames[:]...) }

func (b Grouping) String() string {
	if b < groupings {
		return groupingNames[b]
	}
	return fmt.Sprint(uint8(b))
}

// kernelGroup is the name of the group of a guest's kernel: the address space of the channel
// that is bound first while the guest has no other. A driver makes it for itself when it finds
// the card, before a process can ask for one.
const kernelGroup = "kernel"

// groupKey names a group of a guest.
type groupKey struct {
	dir     uint64
	target  shadowpt.Target
	channel uint8 // plus one
	all     bool
}

func (b Grouping) keyOf(ch Channel) groupKey {
	switch b {
	case ByChannel:
		return groupKey{channel: ch.Number() + 1}
	case ByGuest:
		return groupKey{all: true}
	}
	dir, target := ch.Space()
	return groupKey{dir: dir, target: target}
}

// nameOf returns the name of a group in the ledger.
func (sh *share) nameOf(key groupKey) string {
	switch {
	case key.all:
		return "all"
	case key.channel != 0:
		return fmt.Sprintf("channel-%d", key.channel-1)
	case key == sh.kernel:
		return kernelGroup
	case key.target != shadowpt.VRAM:
		return fmt.Sprintf("space-%#x.%d", key.dir, key.target)
	}
	return fmt.Sprintf("space-%#x", key.dir)
}
