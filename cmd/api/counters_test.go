package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/metrics"
)

// sections are the tables of docs/reference/counters.md, by definition of the schema.
var sections = []struct{ title, def string }{
	{"Requests of a guest and their results", "Counts"},
	{"Rules that a guest broke", "Rules"},
	{"A GPU", "GPUReport"},
	{"Connections", "ConnectionCount"},
	{"Messages by command", "MessageCount"},
	{"Traps by region", "RegionCount"},
	{"Interrupts", "DeliveryCount"},
	{"Work of engines for a guest", "WorkCount"},
	{"The server", "Status"},
	{"Programs as machine code", "ProgramCounts"},
	{"The card", "CardReport"},
	{"Channels of the card", "ChannelCount"},
	{"Engines of the card by class", "ClassCount"},
	{"Methods without effect", "IgnoredMethod"},
	{"Translations of the card", "TLBCount"},
	{"Faults of the card", "CardFaults"},
	{"Calls that GSP lacks", "Unsupported"},
	{"Card time", "LedgerNode"},
	{"Card time by engine", "EngineAccount"},
	{"Events that should not happen", "sched.Counts"},
	{"Registers", "mmio.Report"},
	{"Registers by block", "mmio.BlockCount"},
	{"Each register", "mmio.RowCount"},
	{"Accesses that no register covers", "mmio.Missed"},
	{"Undeclared offsets", "mmio.Hole"},
	{"Rows of umbra regs", "Register"},
}

const countersIntro = `# Counters

Every number that Umbra counts. Generated. Counting is always on, and reading the counters disturbs no guest.

- Prometheus reads those with a metric at /metrics of the control socket, and of the TCP address in the option metrics.
- umbra status --json has the server, the card and each GPU; umbra gpu show NAME --json has everything about one GPU.
- The report of umbra serve, at its end and at SIGUSR1, has all of it. umbra sched show has card time, umbra regs has registers.
- Text output has the same names where it lists counters, and leaves out those that are zero.

Counters only grow, from the start of the server or from when a GPU was added. A text that begins with "Gauge." describes the
present state instead, which may also fall. Keys that end in _ns are nanoseconds; their metrics have seconds. Names in braces
are a metric's labels.
[control-api.md](../control-api.md) describes the JSON around these tables.
`

// TestCounterReference: docs/reference/counters.md is generated from the schema; every number in
// an answer of the control API has a help text, and a table unless it is an option.
func TestCounterReference(t *testing.T) {
	g := newGenerator(t)
	var b strings.Builder
	b.WriteString(countersIntro)
	known := make(map[string]*metrics.Number)
	for _, n := range metrics.Numbers() {
		known[n.In+"."+n.Key] = n
	}
	known["Status.uptime_ns"] = known["Report.uptime_ns"]
	tables := map[string]bool{"Card": true, "GPU": true, "InexactWindow": true, "InjectRequest": true, "Injected": true, "Report": true, "Serving": true, "Share": true, "Stopped": true} // repeat others, are options or events
	for _, s := range sections {
		tables[s.def] = true
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		if parents := g.parents[s.def]; parents != nil {
			fmt.Fprintf(&b, "In `%s`.\n\n", strings.Join(parents, "`, `"))
		}
		b.WriteString("| name | metric | meaning |\n|---|---|---|\n")
		for _, name := range g.keys[s.def] {
			p, n := g.defs[s.def].(object)["properties"].(object)[name].(object), known[s.def+"."+name]
			if p["type"] != "integer" && n == nil {
				continue
			}
			require.Regexp(t, `^[A-Z].*\.$`, p["description"], "the help of %s in %s is no sentence", name, s.def)
			metric := ""
			if n != nil {
				metric = strings.Replace(fmt.Sprintf("`%s{%s}`", n.Metric, strings.Join(n.Labels, ",")), "{}", "", 1)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, metric, strings.ReplaceAll(p["description"].(string), "|", `\|`))
		}
	}
	for def, o := range g.defs {
		for name, p := range o.(object)["properties"].(object) {
			isCount := p.(object)["type"] == "integer" && !strings.HasPrefix(def, "probe.") && !strings.HasPrefix(def, "wire.") && !strings.HasPrefix(def, "hostcards.")
			require.False(t, isCount && !tables[def], "%s in %s is in no table", name, def)
		}
	}
	generated(t, "counters.md", b.String())
}
