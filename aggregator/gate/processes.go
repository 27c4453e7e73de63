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

func (b Grouping) keyOf(ch Channel) GroupKey {
	switch b {
	case ByChannel:
		return GroupKey{Channel: ch.Number() + 1}
	case ByGuest:
		return GroupKey{All: true}
	}
	dir, target := ch.Space()
	return GroupKey{Dir: dir, Target: target}
}

// nameOf returns the name of a group in the ledger.
func (sh *ShareState) nameOf(key GroupKey) string {
	switch {
	case key.All:
		return "all"
	case key.Channel != 0:
		return fmt.Sprintf("channel-%d", key.Channel-1)
	case key == sh.Kernel:
		return kernelGroup
	case key.Target != shadowpt.VRAM:
		return fmt.Sprintf("space-%#x.%d", key.Dir, key.Target)
	}
	return fmt.Sprintf("space-%#x", key.Dir)
}
