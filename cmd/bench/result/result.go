// Package result holds what umbra bench measured: it writes and reads Go's benchmark format,
// summarizes repetitions with golang.org/x/perf, and shows them as text and plots.
//
// The package has no state, locks or goroutines.
package result

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchunit"
	"golang.org/x/sys/unix"
)

// Where a scenario is measured; values of the configuration key where.
const (
	Process = "process"
	Machine = "machine"
)

// keyWhere is the configuration key of the place.
const keyWhere = "where"

// Units of every result, as golang.org/x/perf calls them after reading.
const (
	Time  = "sec/op"
	Traps = "traps/op"
)

// Key names what one benchmark line measured.
type Key struct {
	Where    string
	Scenario string
	Case     string // a part of the benchmark's name, such as "size=4KiB/engine=CE0"
	Setup    string
}

// name is the benchmark's name: BenchmarkCopy/size=4KiB/engine=CE0/setup=all.
func (k *Key) name() benchfmt.Name {
	s := strings.ToUpper(k.Scenario[:1]) + k.Scenario[1:]
	if k.Case != "" {
		s += "/" + k.Case
	}
	return benchfmt.Name(s + "/setup=" + k.Setup)
}

func keyOf(r *benchfmt.Result) (k Key, ok bool) {
	k.Where = r.GetConfig(keyWhere)
	full := r.Name.String()
	at := strings.LastIndex(full, "/setup=")
	if at < 0 || k.Where == "" {
		return k, false
	}
	k.Setup = full[at+len("/setup="):]
	base, name, _ := strings.Cut(full[:at], "/")
	k.Scenario, k.Case = strings.ToLower(base), name
	return k, true
}

// Value is one number with its unit, such as 12 "traps/op".
type Value struct {
	Unit  string
	Value float64
}

// Run is the results of one run, in the order in which they were measured. The n-th line of a key
// belongs to the n-th round.
type Run struct {
	Results []*benchfmt.Result
	Notes   []string // comments of the file: when and by what it was measured
	Errors  []string // what could not be measured
	Base    string   // set-up that the others are compared with; "" is pass-through
	config  []benchfmt.Config
}

// NewRun returns an empty run that was measured on this machine.
func NewRun() *Run {
	r := &Run{}
	r.Set("goos", runtime.GOOS)
	r.Set("goarch", runtime.GOARCH)
	r.Set("cpu", processor())
	r.Set("cpus", fmt.Sprint(runtime.NumCPU()))
	return r
}

// processor is the processor's name.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// BusyHint warns if other work occupies the machine.
func BusyHint() string {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return ""
	}
	load, cpus := float64(s.Loads[0])/(1<<16), runtime.NumCPU()
	if load < float64(cpus) {
		return ""
	}
	return fmt.Sprintf("other work occupies this machine (load %.1f on %d processors): times and ratios are doubtful", load, cpus)
}

// Set sets a configuration key of all results that are added from now on; "" removes it.
func (r *Run) Set(key, value string) {
	r.config = slices.DeleteFunc(slices.Clone(r.config), func(c benchfmt.Config) bool { return c.Key == key })
	if value != "" {
		r.config = append(r.config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
	}
}

// Add adds one repetition.
func (r *Run) Add(k Key, values []Value) {
	r.Set(keyWhere, k.Where)
	res := &benchfmt.Result{Config: r.config, Name: k.name(), Iters: 1}
	for _, v := range values {
		tidy, unit := benchunit.Tidy(v.Value, v.Unit)
		res.Values = append(res.Values, benchfmt.Value{Value: tidy, Unit: unit, OrigValue: v.Value, OrigUnit: v.Unit})
	}
	r.Results = append(r.Results, res)
}

// Config returns the value of a configuration key of the first result that has it.
func (r *Run) Config(key string) string {
	for _, res := range r.Results {
		if v := res.GetConfig(key); v != "" {
			return v
		}
	}
	return ""
}

const (
	notePrefix  = "# "
	errorPrefix = "# not measured: "
)

// better reports units of which more is better.
func better(unit string) bool { return strings.HasSuffix(unit, "/s") || unit == "fairness" }

// Write writes the run in Go's benchmark format.
func (r *Run) Write(w io.Writer) error {
	var b bytes.Buffer
	for _, n := range r.Notes {
		fmt.Fprintln(&b, notePrefix+n)
	}
	for _, e := range r.Errors {
		fmt.Fprintln(&b, errorPrefix+e)
	}
	var more []string
	for _, res := range r.Results {
		for _, v := range res.Values {
			if better(v.Unit) && !slices.Contains(more, v.Unit) {
				more = append(more, v.Unit)
			}
		}
	}
	for _, u := range more {
		fmt.Fprintf(&b, "Unit %s better=higher\n", u)
	}
	out := benchfmt.NewWriter(&b)
	for _, res := range r.Results {
		if err := out.Write(res); err != nil {
			return err
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Read reads a run that Write wrote.
func Read(in io.Reader) (*Run, error) {
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	r := new(Run)
	for l := range strings.Lines(string(data)) {
		l = strings.TrimSpace(l)
		if e, ok := strings.CutPrefix(l, errorPrefix); ok {
			r.Errors = append(r.Errors, e)
		} else if n, ok := strings.CutPrefix(l, notePrefix); ok {
			r.Notes = append(r.Notes, n)
		}
	}
	from := benchfmt.NewReader(bytes.NewReader(data), "")
	for from.Scan() {
		switch rec := from.Result().(type) {
		case *benchfmt.Result:
			if _, ok := keyOf(rec); ok {
				r.Results = append(r.Results, rec.Clone())
			}
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("line %d: %s", rec.Line, rec.Msg)
		}
	}
	if err := from.Err(); err != nil {
		return nil, err
	}
	if len(r.Results)+len(r.Errors) == 0 {
		return nil, fmt.Errorf("no results of umbra bench: lines such as BenchmarkProbe/bring-up/setup=all 1 1000 ns/op, below where: %s or %s", Process, Machine)
	}
	return r, nil
}

// table is the values of a run by key and unit, round by round.
type table struct {
	keys []Key // in order of appearance, each once
	by   map[Key]map[string][]float64
}

func (r *Run) table() *table {
	t := &table{by: map[Key]map[string][]float64{}}
	for _, res := range r.Results {
		k, ok := keyOf(res)
		if !ok {
			continue
		}
		if t.by[k] == nil {
			t.by[k] = map[string][]float64{}
			t.keys = append(t.keys, k)
		}
		for _, v := range res.Values {
			t.by[k][v.Unit] = append(t.by[k][v.Unit], v.Value)
		}
	}
	return t
}

// Setups returns the names of the set-ups that were measured.
func (r *Run) Setups() []string {
	return distinct(r.table().keys, func(Key) bool { return true }, func(k Key) string { return k.Setup })
}

// distinct returns the distinct values of a part of the keys that match.
func distinct(keys []Key, match func(Key) bool, part func(Key) string) (out []string) {
	for _, k := range keys {
		if match(k) && !slices.Contains(out, part(k)) {
			out = append(out, part(k))
		}
	}
	return out
}

// units returns the units of a key: the time, the traps, and the others by name.
func (t *table) units(keys []Key) (out []string) {
	for _, k := range keys {
		for u := range t.by[k] {
			if !slices.Contains(out, u) {
				out = append(out, u)
			}
		}
	}
	rank := map[string]int{Time: -2, Traps: -1}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), strings.Compare(a, b))
	})
	return out
}
