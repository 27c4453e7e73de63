package sched

import "strings"

// Who looks at what. A parameter that the policy in force makes no use of is taken all the
// same, since the policy may be changed while all runs: whoever takes it from a person asks
// here, and says so. What cannot be, [Config.Check] refuses.

// usedBy are the policies that look at a field of [Config], or at those of a section; what is
// not here is for all. None does order by the hierarchy and by priorities what comes at one
// and the same moment; nobody gets more by it. Credit's period is also that of caps, whatever
// the policy.
var usedBy = map[string][]Policy{
	"hierarchy": {FIFO, Credit, Band, Timeslice, DFQ},
	"depth":     {FIFO, Credit, Band, Timeslice, DFQ},
	"ahead":     {FIFO, Credit, Band},
	"credit":    {Credit, Band},
	"band":      {Band},
	"timeslice": {Timeslice},
	"dfq":       {DFQ},
}

// UsedBy lists the policies that look at a field of [Config], by its name as in JSON:
// dfq.free_run. Nil: all do.
func UsedBy(field string) []Policy {
	section, _, _ := strings.Cut(field, ".")
	return usedBy[section]
}

// usedBelow are the policies below which a field of [NodeConfig] makes a difference.
var usedBelow = map[string][]Policy{
	"weight":   {Credit, Band, Timeslice, DFQ},
	"priority": {FIFO, Credit, Band, Timeslice, DFQ},
	"policy":   {FIFO, Credit, Band, Timeslice},
}

// UsedBelow lists the policies below which a field of [NodeConfig] makes a difference, by its
// name as in JSON: the card's policy for guests. Nil: below all.
func UsedBelow(field string) []Policy { return usedBelow[field] }
