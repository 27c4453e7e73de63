package sched

import (
	"fmt"
	"slices"
	"strings"
)

// Parameters without effect. One rule for all: what can be, but does nothing as things are,
// is taken, since the policy may be changed while all runs; and it is told, with what
// would give it effect. What cannot be, [Config.Check] refuses.

// onlyOf is a parameter that some policies look at.
type onlyOf struct {
	field    string
	value    func(*Config) any
	policies []Policy
}

func of(field string, value func(*Config) any, policies ...Policy) onlyOf {
	return onlyOf{field, value, policies}
}

var onlyOfPolicies = []onlyOf{
	of("depth", func(c *Config) any { return c.Depth }, FIFO, Credit, Band, Timeslice, DFQ),
	of("ahead", func(c *Config) any { return c.Ahead }, FIFO, Credit, Band),
	of("band.window", func(c *Config) any { return c.Band.Window }, Band),
	of("band.grace", func(c *Config) any { return c.Band.Grace }, Band),
	of("band.chances", func(c *Config) any { return c.Band.Chances }, Band),
	of("timeslice.slice", func(c *Config) any { return c.Timeslice.Slice }, Timeslice),
	of("timeslice.work_conserving", func(c *Config) any { return c.Timeslice.WorkConserving }, Timeslice),
	of("timeslice.grace", func(c *Config) any { return c.Timeslice.Grace }, Timeslice),
	of("timeslice.disengaged", func(c *Config) any { return c.Timeslice.Disengaged }, Timeslice),
	of("dfq.slice", func(c *Config) any { return c.DFQ.Slice }, DFQ),
	of("dfq.factor", func(c *Config) any { return c.DFQ.Factor }, DFQ),
	of("dfq.free_run", func(c *Config) any { return c.DFQ.FreeRun }, DFQ),
	of("dfq.requests", func(c *Config) any { return c.DFQ.Requests }, DFQ),
	of("dfq.least", func(c *Config) any { return c.DFQ.Least }, DFQ),
	of("dfq.grace", func(c *Config) any { return c.DFQ.Grace }, DFQ),
	of("dfq.window", func(c *Config) any { return c.DFQ.Window }, DFQ),
	of("dfq.model", func(c *Config) any { return c.DFQ.Model }, DFQ),
}

// Idle says what of the configuration differs from the default and has no effect, each as
// an [Error] that names the field and what would give it effect. Nodes may have other
// policies than the card; what those look at has effect, too.
func (c *Config) Idle(nodes ...Policy) (idle []*Error) {
	def := Default()
	for _, o := range onlyOfPolicies {
		used := func(p Policy) bool { return slices.Contains(o.policies, p) }
		if v := o.value(c); v != o.value(&def) && !used(c.Policy) && !slices.ContainsFunc(nodes, used) {
			idle = append(idle, &Error{o.field, fmt.Sprint(v), fmt.Sprintf("has no effect with policy %v; it is for %v", c.Policy, list(o.policies))})
		}
	}
	return idle
}

// IdleIn is the same of a node below one whose children take turns by a policy: the
// card's for guests.
func (n *NodeConfig) IdleIn(above Policy) (idle []*Error) {
	for _, o := range []struct {
		field    string
		set      bool
		value    any
		policies []Policy
	}{
		{"weight", n.Weight != 0 && n.Weight != BaseWeight, n.Weight, []Policy{Credit, Band, Timeslice, DFQ}},
		{"policy", n.Policy != Inherit, n.Policy, []Policy{FIFO, Credit, Band, Timeslice}},
	} {
		if o.set && !slices.Contains(o.policies, above) {
			idle = append(idle, &Error{o.field, fmt.Sprint(o.value), fmt.Sprintf("has no effect below policy %v; it is for %v", above, list(o.policies))})
		}
	}
	return idle
}

// list writes policies as people do: a, b or c.
func list(policies []Policy) string {
	words := make([]string, len(policies))
	for i, p := range policies {
		words[i] = p.String()
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
