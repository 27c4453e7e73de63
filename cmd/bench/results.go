package bench

import (
	"bufio"
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

// record is a run in Go's benchmark format, as it grows. The n-th line of a key belongs to the n-th
// round.
type record struct {
	strings.Builder
	where string // of the last line
}

func newRecord() *record {
	r := new(record)
	r.set("goos", runtime.GOOS)
	r.set("goarch", runtime.GOARCH)
	r.set("cpu", processor())
	r.set("cpus", fmt.Sprint(runtime.NumCPU()))
	return r
}

const (
	notePrefix  = "# "
	errorPrefix = "# not measured: "
)

func (r *record) note(text string) { fmt.Fprintln(r, notePrefix+text) }
func (r *record) failed(text string) {
	fmt.Fprintln(r, errorPrefix+strings.ReplaceAll(text, "\n", "; "))
}

// set sets a configuration key of all results that are added from now on.
func (r *record) set(key, value string) { fmt.Fprintf(r, "%s: %s\n", key, value) }

// add adds one repetition, as BenchmarkCopy/size=4KiB/engine=CE0/setup=all.
func (r *record) add(k Key, values []benchfmt.Value) {
	if k.Where != r.where {
		r.where = k.Where
		r.set(keyWhere, k.Where)
	}
	for _, v := range values {
		line := fmt.Sprintf("Unit %s better=higher\n", v.Unit)
		if (strings.HasSuffix(v.Unit, "/s") || v.Unit == "fairness") && !strings.Contains(r.String(), line) {
			r.WriteString(line)
		}
	}
	name := strings.ToUpper(k.Scenario[:1]) + k.Scenario[1:]
	if k.Case != "" {
		name += "/" + k.Case
	}
	fmt.Fprintf(r, "Benchmark%s/setup=%s 1", name, k.Setup)
	for _, v := range values {
		if v.Value == 0 { // x/perf tells a tidy unit by the value that changes, so of 0 ns it would keep ns
			_, v.Unit = benchunit.Tidy(0, v.Unit)
		}
		fmt.Fprintf(r, " %v %s", v.Value, v.Unit)
	}
	r.WriteByte('\n')
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

// Results are those of one run, in the order in which they were measured.
type Results struct {
	Lines  []*benchfmt.Result
	Notes  []string                     // comments of the file: when and by what it was measured
	Errors []string                     // what could not be measured
	text   string                       // the file
	keys   []Key                        // of Lines, each once
	values map[Key]map[string][]float64 // by unit, round by round
}

// keyOf is the reverse of add.
func keyOf(r *benchfmt.Result) (k Key, ok bool) {
	full, setup, ok := strings.Cut(r.Name.String(), "/setup=")
	scenario, name, _ := strings.Cut(full, "/")
	k = Key{r.GetConfig(keyWhere), strings.ToLower(scenario), name, setup}
	return k, ok && k.Where != ""
}

// parse reads the text of a record.
func parse(text string) (*Results, error) {
	r := &Results{text: text, values: map[Key]map[string][]float64{}}
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if e, ok := strings.CutPrefix(l, errorPrefix); ok {
			r.Errors = append(r.Errors, e)
		} else if n, ok := strings.CutPrefix(l, notePrefix); ok {
			r.Notes = append(r.Notes, n)
		}
	}
	from := benchfmt.NewReader(strings.NewReader(text), "")
	for from.Scan() {
		switch line := from.Result().(type) {
		case *benchfmt.Result:
			k, ok := keyOf(line)
			if !ok {
				continue
			}
			r.Lines = append(r.Lines, line.Clone())
			if r.values[k] == nil {
				r.values[k] = map[string][]float64{}
				r.keys = append(r.keys, k)
			}
			for _, v := range line.Values {
				r.values[k][v.Unit] = append(r.values[k][v.Unit], v.Value)
			}
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("line %d: %s", line.Line, line.Msg)
		}
	}
	return r, from.Err()
}

// Read reads a run that Write wrote.
func Read(in io.Reader) (*Results, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	r, err := parse(string(text))
	if err == nil && len(r.Lines)+len(r.Errors) == 0 {
		err = fmt.Errorf("no results of umbra bench: lines such as BenchmarkProbe/bring-up/setup=all 1 1000 ns/op, below where: %s or %s", process, machines)
	}
	return r, err
}

// Write writes the run in Go's benchmark format.
func (r *Results) Write(w io.Writer) error {
	_, err := io.WriteString(w, r.text)
	return err
}

// Medians returns those of one key by unit, nil if it was not measured.
func (r *Results) Medians(k Key) map[string]float64 {
	if r.values[k] == nil {
		return nil
	}
	out := map[string]float64{}
	for unit, v := range r.values[k] {
		out[unit] = median(slices.Clone(v))
	}
	return out
}

// Setups returns the names of the set-ups that were measured.
func (r *Results) Setups() []string {
	return distinct(r.keys, func(k Key) string { return k.Setup })
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
