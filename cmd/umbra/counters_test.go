package main

import (
	"bytes"
	"context"
	"encoding/json"
	goflag "flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
)

var updateCounters = goflag.Bool("update-counters", false, "write the tables of docs/counters.md that are the code's own anew")

const (
	countersPage = "../../docs/counters.md"
	inexact      = "Mapped windows that are not exact"
)

// counterTable is a table of the page, by the heading above it.
type counterTable struct {
	rows [][]string // name without its marks, unit, meaning, ...
}

// countersOf are the tables of the page; each has a heading of its own. The head of a second one
// below it would be a row of what does not exist.
func countersOf(text string) map[string]*counterTable {
	out := map[string]*counterTable{}
	heading := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "##") {
			heading = strings.TrimLeft(line, "# ")
		}
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch at := out[heading]; {
		case at == nil:
			out[heading] = new(counterTable)
		case strings.HasPrefix(line, "|---"):
		default:
			cells[0] = strings.Trim(cells[0], "`")
			at.rows = append(at.rows, cells)
		}
	}
	return out
}

func (c *counterTable) names() (out []string) {
	for _, r := range c.rows {
		out = append(out, r[0])
	}
	return out
}

// row finds one by its name, nil if there is none.
func (c *counterTable) row(name string) []string {
	i := slices.IndexFunc(c.rows, func(r []string) bool { return r[0] == name })
	if i < 0 {
		return nil
	}
	return c.rows[i]
}

// shownTypes are what the program shows as JSON, and the heading of the table that says what
// their numbers are. Two that stand together have no name in common, or mean the same by it.
var shownTypes = map[reflect.Type]string{
	reflect.TypeFor[api.Status]():           "The server",
	reflect.TypeFor[api.Card]():             "The card",
	reflect.TypeFor[api.GPU]():              "A GPU",
	reflect.TypeFor[serve.Inexact]():        "By window",
	reflect.TypeFor[serve.Report]():         "Waits for unmapped memory",
	reflect.TypeFor[serve.GPUReport]():      "Waits for unmapped memory",
	reflect.TypeFor[serve.CardReport]():     "Interrupts of the card",
	reflect.TypeFor[serve.WorkCount]():      "Moved by engines",
	reflect.TypeFor[serve.ClientCount]():    "Clients",
	reflect.TypeFor[serve.ReceiveCount]():   "Reads of the socket",
	reflect.TypeFor[serve.MessageCount]():   "Messages",
	reflect.TypeFor[serve.RegionCount]():    "Traps by region",
	reflect.TypeFor[serve.InterruptCount](): "Interrupts",
	reflect.TypeFor[serve.ChannelCount]():   "Channels",
	reflect.TypeFor[serve.ClassCount]():     "Engines by class",
	reflect.TypeFor[serve.TriggerCount]():   "Stored but not carried out",
	reflect.TypeFor[serve.TLBCount]():       "Translations",
	reflect.TypeFor[serve.FaultCount]():     "Faults",
	reflect.TypeFor[serve.CardTime]():       "Card time of a GPU",
	reflect.TypeFor[serve.LedgerNode]():     "The ledger",
	reflect.TypeFor[serve.EngineAccount]():  "Accounts of engines",
	reflect.TypeFor[sched.Account]():        "Accounts of engines",
	reflect.TypeFor[sched.Counts]():         "What should not have happened",
	reflect.TypeFor[mmio.Report]():          "All registers, and blocks",
	reflect.TypeFor[mmio.BlockCount]():      "All registers, and blocks",
	reflect.TypeFor[mmio.RowCount]():        "Each register",
	reflect.TypeFor[mmio.Missed]():          "What no register covers",
	reflect.TypeFor[mmio.Hole]():            "Holes",
	reflect.TypeFor[serve.PolicyRow]():      "The register table",
}

// noCounters are types of which nothing is counted: options, which README and
// docs/scheduling.md describe, and the list of counts, whose names have tables.
var noCounters = []reflect.Type{
	reflect.TypeFor[sched.Config](), reflect.TypeFor[api.ShareOf](), reflect.TypeFor[api.Setting](), reflect.TypeFor[aggregator.Count](),
}

// numbers lists the numbers of a type by their names in JSON, and hands on the types in it.
func numbers(of reflect.Type, more func(reflect.Type)) (names []string) {
	for _, f := range reflect.VisibleFields(of) {
		if len(f.Index) > 1 { // of what is embedded, which is handed on
			continue
		}
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name := tag
		if name == "" {
			name = f.Name
		}
		typ := f.Type
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		switch k := typ.Kind(); {
		case tag == "-":
		case k == reflect.Struct:
			more(typ)
		case k >= reflect.Int && k <= reflect.Float64:
			names = append(names, name)
		}
	}
	return names
}

// TestCountersPage: docs/counters.md has every number that the program counts and shows, under
// the name by which it shows it, and no other.
func TestCountersPage(t *testing.T) {
	data, err := os.ReadFile(countersPage)
	require.NoError(t, err)
	text := string(data)
	if *updateCounters {
		text = ownTables(text)
		require.NoError(t, os.WriteFile(countersPage, []byte(text), 0o644))
	}
	require.Equal(t, ownTables(text), text, "the tables that are the code's own: go test ./cmd/umbra -run TestCountersPage -update-counters writes them")
	tables := countersOf(text)
	delete(tables, "") // where things are seen
	want := map[string][]string{}
	add := func(heading string, names ...string) {
		for _, n := range names {
			if !slices.Contains(want[heading], n) {
				want[heading] = append(want[heading], n)
			}
		}
	}

	// What the program shows as JSON.
	seen := map[reflect.Type]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		if seen[of] || slices.Contains(noCounters, of) {
			return
		}
		seen[of] = true
		heading, known := shownTypes[of]
		names := numbers(of, walk)
		require.True(t, known || len(names) == 0, "%v is shown, and no table says what its numbers are: %v", of, names)
		add(heading, names...)
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[serve.Report](), reflect.TypeFor[api.Status](), reflect.TypeFor[api.Schedule](), reflect.TypeFor[api.Shown](),
		reflect.TypeFor[serve.PolicyTable](),
	} {
		walk(of)
	}
	delete(want, "")
	for of := range shownTypes {
		require.True(t, seen[of], "%v is shown nowhere", of)
	}

	// The columns of the list of GPUs that are no number of theirs.
	for column := range strings.SplitSeq(gpuColumns, "\t") {
		if _, text := map[string]bool{"name": true, "client": true, "socket": true}[column]; !text && !slices.Contains(want["A GPU"], strings.ToLower(column)) {
			add("Columns that are sums", column)
		}
	}
	for _, name := range faultCounts {
		require.Contains(t, tables["Columns that are sums"].row("faults")[2], "`"+name+"`")
	}
	// What the page says that the text does not have of a GPU, it has not; and the rest it has.
	blank := shownText(new(api.Shown))
	for _, row := range tables["A GPU"].rows {
		var g api.Shown
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{%q: 7340032}`, row[0]), &g)) // 7 MiB
		hidden := strings.HasSuffix(row[2], "; in JSON only") || strings.HasSuffix(row[2], "; in the text an option of `gpu show`")
		require.Equal(t, hidden, shownText(&g) == blank, row[0])
	}

	// A guest's counts, by name.
	for _, c := range countsOfAGuest(t) {
		heading := "What a guest asked for, and what came of it"
		switch {
		case c.Rule:
			heading = "Rules that a guest broke"
		case strings.HasPrefix(c.Name, "map_inexact_"):
			heading = inexact
		case strings.HasPrefix(c.Name, "map_"):
			heading = "Windows that a guest maps"
		}
		add(heading, c.Name)
	}
	for heading, names := range want {
		require.Contains(t, tables, heading)
		have := tables[heading].names()
		require.ElementsMatch(t, names, have, "under %q", heading)
		for _, row := range tables[heading].rows {
			require.GreaterOrEqual(t, len(row), 3, "%s: %v", heading, row)
			require.NotEmpty(t, row[1], "%s: %s has no unit", heading, row[0])
			require.NotEmpty(t, row[2], "%s: %s has no meaning", heading, row[0])
		}
	}
	for heading := range tables {
		require.Contains(t, want, heading, "a table of what is not shown")
	}

	// What sched show says of the scheduler, the page says in the same words.
	for i := range reflect.TypeFor[sched.Counts]().NumField() {
		counts := new(sched.Counts)
		reflect.ValueOf(counts).Elem().Field(i).SetUint(1)
		name := reflect.TypeFor[sched.Counts]().Field(i).Name
		said := ""
		for text, n := range countsOf(&api.Schedule{Counts: counts}) {
			if n > 0 {
				said = text
			}
		}
		require.NotEmpty(t, said, "umbra sched show does not show %s", name)
		require.True(t, strings.HasPrefix(tables["What should not have happened"].row(name)[2], said), "%s: %s", name, said)
	}
}

// countsOfAGuest are those of a virtual GPU that is served.
func countsOfAGuest(t *testing.T) []aggregator.Count {
	at := filepath.Join(t.TempDir(), "control")
	ctx, end := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- doMain(ctx, []string{"serve", "--control", at, "--gpu", "name=a,vram=64MiB,socket=" + filepath.Join(t.TempDir(), "a.sock")}, new(bytes.Buffer), new(bytes.Buffer))
	}()
	defer func() {
		end()
		require.Equal(t, exitOK, <-code)
	}()
	k := api.NewClient(at)
	var shown api.Shown
	require.Eventually(t, func() (ok bool) {
		var err error
		shown, err = k.Show(ctx, "a")
		return err == nil
	}, patience, time.Millisecond)
	return shown.Counts
}

// ownTables puts the tables of which the code has all the words where they belong in the page.
func ownTables(text string) string {
	var windows strings.Builder
	windows.WriteString("| name | what is not exact, and why | what that means for the guest, and what to do |\n|---|---|---|\n")
	for _, c := range new(homes.Stats).Counts() {
		if !strings.HasPrefix(c.Name, "map_inexact_") {
			continue
		}
		fmt.Fprintf(&windows, "| `%s` | %s | %s |\n", c.Name, c.Why, c.Then)
	}
	for heading, table := range map[string]string{inexact: windows.String()} {
		before, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
		intro, rest, ok2 := strings.Cut(rest, "\n\n| ")
		_, after, ok3 := strings.Cut(rest, "\n\n")
		if !ok || !ok2 || !ok3 {
			return "no table under " + heading
		}
		text = before + "\n## " + heading + "\n" + intro + "\n\n" + table + "\n" + after
	}
	return text
}
