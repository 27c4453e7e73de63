package sched

import (
	"fmt"
	"strings"
)

// Policy is how the children of a node take turns.
type Policy uint8

// The policies.
const (
	Inherit   Policy = iota // of a node: as the node above it
	None                    // of the card: forward at once, the card's own turns; of a node: turns of one request
	FIFO                    // in the order of submission
	Credit                  // turns among those with credit, then the least debt
	Band                    // credit, and who used more than a fair share of late goes last
	Timeslice               // one at a time for a slice
	DFQ                     // disengaged fair queueing; of the card only
	policies
)

var policyNames = [policies]string{"inherit", "none", "fifo", "credit", "band", "timeslice", "dfq"}

// Policies are those that a card may have, by name.
func Policies() []string { return append([]string(nil), policyNames[None:]...) }

func (p Policy) String() string { return nameOf(policyNames[:], uint8(p)) }

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(text []byte) error {
	return byName(policyNames[:], string(text), "policy", (*uint8)(p))
}

// Hierarchy is which nodes compete with each other.
type Hierarchy uint8

// The hierarchies.
const (
	Tree        Hierarchy = iota // the children of each node
	FlatWeights                  // all groups, each with the share that the tree would give it
	Flat                         // all groups, by their own weights
	hierarchies
)

var hierarchyNames = [hierarchies]string{"tree", "flat-weights", "flat"}

// Hierarchies are their names.
func Hierarchies() []string { return append([]string(nil), hierarchyNames[:]...) }

func (h Hierarchy) String() string { return nameOf(hierarchyNames[:], uint8(h)) }

// MarshalText implements encoding.TextMarshaler.
func (h Hierarchy) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hierarchy) UnmarshalText(text []byte) error {
	return byName(hierarchyNames[:], string(text), "hierarchy", (*uint8)(h))
}

func nameOf(names []string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprint(v)
}

func byName(names []string, text, what string, v *uint8) error {
	for i, n := range names {
		if n == text {
			*v = uint8(i)
			return nil
		}
	}
	return &Error{Field: what, Value: text, Reason: "must be one of " + strings.Join(names, ", ")}
}

// Error is a parameter that cannot be.
type Error struct {
	Field  string // as in the configuration: credit.period
	Value  string
	Reason string // what would be right
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Field, e.Value, e.Reason) }
