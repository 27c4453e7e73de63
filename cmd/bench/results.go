package bench

import (
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

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

// Units of every result, and what golang.org/x/perf calls that of time after reading.
const (
	unitNS     = "ns/op"
	unitTime   = "sec/op"
	unitTraps  = "traps/op"
	unitTrapNS = "trap-ns/op"
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

// describe says by what, when and where a run is measured.
func (r *record) describe(o *Options) {
	r.note(fmt.Sprintf("measured by umbra %s, %s, %s", o.Version, runtime.Version(), time.Now().UTC().Format(time.RFC3339)))
	if o.Flags != "" {
		r.note("umbra " + o.Flags)
	}
	if hint := BusyHint(); hint != "" {
		r.note(hint)
	}
	r.set("goos", runtime.GOOS)
	r.set("goarch", runtime.GOARCH)
	r.set("cpu", processor())
	r.set("cpus", fmt.Sprint(runtime.NumCPU()))
	if o.Quick {
		r.set("quick", "true")
	}
}

// add adds one repetition, as BenchmarkCopy/size=4KiB/engine=CE0/setup=all.
func (r *record) add(k Key, values []benchfmt.Value) {
	if k.Where != r.where {
		r.where = k.Where
		r.set(keyWhere, k.Where)
	}
	name := path.Join(strings.ToUpper(k.Scenario[:1])+k.Scenario[1:], k.Case)
	fmt.Fprintf(r, "Benchmark%s/setup=%s 1", name, k.Setup)
	for _, v := range values {
		if v.Value == 0 { // x/perf tells a tidy unit by the value that changes, so of 0 ns it would keep ns
			_, v.Unit = benchunit.Tidy(0, v.Unit)
		}
		fmt.Fprintf(r, " %v %s", v.Value, v.Unit)
	}
	r.WriteByte('\n')
}

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.+)$`)

// processor is the processor's name.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it the name is unknown
	if m := modelName.FindSubmatch(text); m != nil {
		return string(m[1])
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
			r.addLine(line)
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("line %d: %s", line.Line, line.Msg)
		}
	}
	return r, from.Err()
}

// addLine is the reverse of record.add. Lines of other programs are left out.
func (r *Results) addLine(line *benchfmt.Result) {
	full, setup, ok := strings.Cut(line.Name.String(), "/setup=")
	scenario, name, _ := strings.Cut(full, "/")
	k := Key{line.GetConfig(keyWhere), strings.ToLower(scenario), name, setup}
	if !ok || k.Where == "" {
		return
	}
	r.Lines = append(r.Lines, line.Clone())
	if r.values[k] == nil {
		r.values[k] = map[string][]float64{}
		r.keys = append(r.keys, k)
	}
	for _, v := range line.Values {
		r.values[k][v.Unit] = append(r.values[k][v.Unit], v.Value)
	}
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

// Medians returns those of one key by unit.
func (r *Results) Medians(k Key) map[string]float64 {
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
