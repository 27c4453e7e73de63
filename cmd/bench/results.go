package bench

import (
	"bufio"
	"bytes"
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
	process  = "process"
	machines = "machine"
	keyWhere = "where"
)

// Units of every result, as golang.org/x/perf calls them after reading.
const (
	unitTime  = "sec/op"
	unitTraps = "traps/op"
)

// Key names what one benchmark line measured.
type Key struct {
	Where, Scenario string
	Case            string // a part of the benchmark's name, such as "size=4KiB/engine=CE0"
	Setup           string
}

// name is the benchmark's name: Copy/size=4KiB/engine=CE0/setup=all.
func (k *Key) name() benchfmt.Name {
	s := strings.ToUpper(k.Scenario[:1]) + k.Scenario[1:]
	if k.Case != "" {
		s += "/" + k.Case
	}
	return benchfmt.Name(s + "/setup=" + k.Setup)
}

func keyOf(r *benchfmt.Result) (k Key, ok bool) {
	full, setup, ok := strings.Cut(r.Name.String(), "/setup=")
	scenario, name, _ := strings.Cut(full, "/")
	k = Key{r.GetConfig(keyWhere), strings.ToLower(scenario), name, setup}
	return k, ok && k.Where != ""
}

// Results are those of one run, in the order in which they were measured. The n-th line of a key
// belongs to the n-th round.
type Results struct {
	Lines  []*benchfmt.Result
	Notes  []string // comments of the file: when and by what it was measured
	Errors []string // what could not be measured
	config []benchfmt.Config
}

func newResults() *Results {
	r := &Results{}
	r.set("goos", runtime.GOOS)
	r.set("goarch", runtime.GOARCH)
	r.set("cpu", processor())
	r.set("cpus", fmt.Sprint(runtime.NumCPU()))
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

// set sets a configuration key of all results that are added from now on.
func (r *Results) set(key, value string) {
	r.config = slices.DeleteFunc(slices.Clone(r.config), func(c benchfmt.Config) bool { return c.Key == key })
	r.config = append(r.config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
}

// add adds one repetition.
func (r *Results) add(k Key, values []benchfmt.Value) {
	r.set(keyWhere, k.Where)
	res := &benchfmt.Result{Config: r.config, Name: k.name(), Iters: 1}
	for _, v := range values {
		if tidy, unit := benchunit.Tidy(v.Value, v.Unit); unit != v.Unit {
			v = benchfmt.Value{Value: tidy, Unit: unit, OrigValue: v.Value, OrigUnit: v.Unit}
		}
		if v.Value == 0 { // x/perf tells a tidy unit by the value that changes, so of 0 ns it would keep ns
			v.OrigUnit = ""
		}
		res.Values = append(res.Values, v)
	}
	r.Lines = append(r.Lines, res)
}

const (
	notePrefix  = "# "
	errorPrefix = "# not measured: "
)

// Write writes the run in Go's benchmark format.
func (r *Results) Write(w io.Writer) error {
	var b bytes.Buffer
	for _, n := range r.Notes {
		fmt.Fprintln(&b, notePrefix+n)
	}
	for _, e := range r.Errors {
		fmt.Fprintln(&b, errorPrefix+e)
	}
	var more []string
	for _, res := range r.Lines {
		for _, v := range res.Values {
			if (strings.HasSuffix(v.Unit, "/s") || v.Unit == "fairness") && !slices.Contains(more, v.Unit) {
				more = append(more, v.Unit)
				fmt.Fprintf(&b, "Unit %s better=higher\n", v.Unit)
			}
		}
	}
	out := benchfmt.NewWriter(&b)
	for _, res := range r.Lines {
		if err := out.Write(res); err != nil {
			return err
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Read reads a run that Write wrote.
func Read(in io.Reader) (*Results, error) {
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	r := new(Results)
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
				r.Lines = append(r.Lines, rec.Clone())
			}
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("line %d: %s", rec.Line, rec.Msg)
		}
	}
	if err := from.Err(); err != nil {
		return nil, err
	}
	if len(r.Lines)+len(r.Errors) == 0 {
		return nil, fmt.Errorf("no results of umbra bench: lines such as BenchmarkProbe/bring-up/setup=all 1 1000 ns/op, below where: %s or %s", process, machines)
	}
	return r, nil
}

// values are those of a run by key and unit, round by round.
type values struct {
	keys []Key // in order of appearance, each once
	by   map[Key]map[string][]float64
}

func (r *Results) values() *values {
	t := &values{by: map[Key]map[string][]float64{}}
	for _, res := range r.Lines {
		k, _ := keyOf(res)
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

// Medians returns those of one key by unit, nil if it was not measured.
func (r *Results) Medians(k Key) map[string]float64 {
	by := r.values().by[k]
	if by == nil {
		return nil
	}
	out := map[string]float64{}
	for unit, v := range by {
		out[unit] = median(v)
	}
	return out
}

// Setups returns the names of the set-ups that were measured.
func (r *Results) Setups() []string {
	return distinct(r.values().keys, func(k Key) string { return k.Setup })
}

// distinct returns the distinct names of a list, in order.
func distinct[T any, N comparable](list []T, name func(T) N) (out []N) {
	for _, v := range list {
		if n := name(v); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}
