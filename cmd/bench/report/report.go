// Package report is what a run of umbra bench found: a plain, versioned structure
// that is written as JSON, as a table, and compared with that of another run.
//
// The structure is described by schema.json, which is part of the package, and by
// docs/bench.md. Times are nanoseconds, sizes bytes; every measured value is a
// [stats.Summary] of its repetitions. A count that a set-up does not have is
// missing, never zero.
//
// The package has no state, locks or goroutines.
package report

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// Schema and Version name the structure. The version grows when a reader of the
// one before would misread the new one.
const (
	Schema  = "umbra-bench"
	Version = 3
)

// JSONSchema describes the JSON of a Report.
//
//go:embed schema.json
var JSONSchema []byte

// Report is one run.
type Report struct {
	Schema    string     `json:"schema"`
	Version   int        `json:"version"`
	Umbra     string     `json:"umbra"`
	Began     time.Time  `json:"began"`
	Seconds   float64    `json:"seconds"`
	Machine   Machine    `json:"machine"`
	Emulator  *Emulator  `json:"emulator,omitempty"` // without virtual machines there is none
	Run       Run        `json:"run"`
	Setups    []Setup    `json:"setups"`
	Scenarios []Scenario `json:"scenarios"`
	Results   []Result   `json:"results"`
	Traps     []Trap     `json:"traps,omitempty"`
	Bells     []Bell     `json:"bells,omitempty"`
	Model     *Model     `json:"model,omitempty"`   // of time, by what was measured meanwhile
	Counted   *Model     `json:"counted,omitempty"` // of time, by counts alone
	Errors    []string   `json:"errors,omitempty"`  // what could not be measured
}

// Emulator is what ran the virtual machines.
type Emulator struct {
	QEMU        string `json:"qemu"`
	Accelerator string `json:"accelerator"`
}

// Run is how the run was asked for.
type Run struct {
	Repeat int  `json:"repeat"` // turns of each measurement in this process
	Boots  int  `json:"boots"`  // of each virtual machine; 0 without them
	Quick  bool `json:"quick"`  // small parameters
	// BusyBytes is how many bytes the card copies in a millisecond of busy work, as
	// calibrated at the beginning, or taken from the report that this run was
	// compared with. It is 0 if nothing needed it.
	BusyBytes uint64 `json:"busy_bytes_per_ms"`
}

// Setup is one way to serve a GPU.
type Setup struct {
	Name    string            `json:"name"`
	About   string            `json:"about"`
	Whole   bool              `json:"whole"`   // the card itself, with nothing in between
	Options map[string]string `json:"options"` // as in the configuration, where they are not the default
}

// PassThrough is the set-up that ratios are made with.
const PassThrough = "pass-through"

// Scenario is what is measured.
type Scenario struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	About string `json:"about"`
}

// Where a measurement was taken.
const (
	InProcess = "process" // by a driver in this process
	InMachine = "machine" // by a stock kernel in a virtual machine
)

// Result is one case of a scenario with one set-up.
type Result struct {
	Scenario   string            `json:"scenario"`
	Case       string            `json:"case"`
	Where      string            `json:"where"`
	Setup      string            `json:"setup"`
	Parameters map[string]string `json:"parameters"`
	Phases     []Phase           `json:"phases"`
	Total      Phase             `json:"total"` // the sum of the phases
	// Ratio is the total time by pass-through's of the same turn.
	Ratio   *stats.Summary `json:"ratio,omitempty"`
	Figures []Figure       `json:"figures,omitempty"`
}

// Phase is a part of a case: how long it took and what happened meanwhile.
type Phase struct {
	Name   string                   `json:"name"`
	NS     stats.Summary            `json:"ns"`
	Counts map[string]stats.Summary `json:"counts"` // by the names in Counts
}

// Figure is something else that a case measures.
type Figure struct {
	Name  string        `json:"name"`
	Unit  Unit          `json:"unit"`
	Value stats.Summary `json:"value"`
}

// manyValues is from how many on a figure is shown with the interval of its median, however
// many turns they are of.
const manyValues = 12

// Show writes one of the result's figures: its median, and the interval of that if it was
// measured often in each turn, because it is near its noise. Of too few values for one it says
// how many they are.
func (r *Result) Show(f *Figure) string {
	text := f.Unit.Show(f.Value.Median)
	switch low, high, ok := f.Value.Interval(); {
	case !r.often(f):
		return text
	case !ok:
		return fmt.Sprintf("%s (of %d)", text, f.Value.N)
	default:
		return fmt.Sprintf("%s (%s to %s)", text, f.Unit.Show(low), f.Unit.Show(high))
	}
}

// often tells whether a figure has more values than turns, or very many.
func (r *Result) often(f *Figure) bool {
	return f.Value.N > r.Total.NS.N || f.Value.N >= manyValues
}

// Few says of some results' figures why they stand without the interval that they are measured
// for, "" if there are none.
func Few(rows []*Result) string {
	for _, x := range rows {
		for i := range x.Figures {
			f := &x.Figures[i]
			if _, _, ok := f.Value.Interval(); !ok && x.often(f) {
				return fmt.Sprintf("Of %s there are %d values, and an interval that holds their median 19 times in 20 takes %d: more turns have one (--repeat)", f.Name, f.Value.N, stats.EnoughForInterval)
			}
		}
	}
	return ""
}

// Unit of a figure.
type Unit string

// The units.
const (
	Nanoseconds    Unit = "ns"
	BytesPerSecond Unit = "B/s"
	Number         Unit = "1"
	Share          Unit = "share" // of one: 0.01 is a hundredth
	EachSecond     Unit = "1/s"
)

// Trap is what one access of a class costs with one set-up.
type Trap struct {
	Setup  string        `json:"setup"`
	Class  string        `json:"class"`
	Posted bool          `json:"posted"` // nobody waits for a reply
	N      int           `json:"n"`      // accesses in all
	P50    stats.Summary `json:"p50_ns"`
	P99    stats.Summary `json:"p99_ns"`
	// Where the time goes: Socket is what messages and threads take, Dispatch what
	// an access without any effect takes in the device, Effect what this one takes
	// beyond it. Their sum is the mean of one access.
	Socket   stats.Summary `json:"socket_ns"`
	Dispatch stats.Summary `json:"dispatch_ns"`
	Effect   stats.Summary `json:"effect_ns"`
}

// Model is a fit of the medians of phases: time = own + what its terms make. Own is of
// the case's phase, the same with every set-up: what the guest and the engines do.
type Model struct {
	Terms    []Term  `json:"terms"`
	Own      []Own   `json:"own"`
	Residual float64 `json:"residual"` // root mean square, as a share of the measured time
	R2       float64 `json:"r2"`
	N        int     `json:"n"` // phases that it was fitted to
}

// Term is one coefficient, in nanoseconds for one of what it counts.
type Term struct {
	Name  string  `json:"name"`
	Count string  `json:"count"` // of Counts
	NS    float64 `json:"ns"`
}

// Own is what a phase takes whatever the set-up.
type Own struct {
	Phase string  `json:"phase"` // scenario, case, phase
	NS    float64 `json:"ns"`
}

// Encode writes the report as JSON.
func (r *Report) Encode(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// renamed says of versions before what is not called, or not meant, as it was.
var renamed = map[int]string{
	2: " (what was map_moves there is map_pages_moved, and map_moves is the server's name for something else)",
}

// Decode reads a report that Encode wrote.
func Decode(in io.Reader) (*Report, error) {
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var head struct {
		Schema  string `json:"schema"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("not a report of umbra bench: %w", err)
	}
	switch {
	case head.Schema != Schema:
		return nil, fmt.Errorf("not a report of umbra bench: its schema is %q, want %q", head.Schema, Schema)
	case head.Version != Version:
		return nil, fmt.Errorf("a report of version %d; this program reads version %d%s: measure again, or use the program that wrote it", head.Version, Version, renamed[head.Version])
	}
	if wrong, err := Validate(data); err != nil || len(wrong) > 0 {
		return nil, errors.Join(fmt.Errorf("not a report of umbra bench as its schema has it: %s", strings.Join(wrong[:min(len(wrong), 3)], "; ")), err)
	}
	r := new(Report)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("not a report of umbra bench: %w", err)
	}
	return r, nil
}

// Find returns the result of one case with one set-up, or nil.
func (r *Report) Find(where, scenario, name, setup string) *Result {
	i := slices.IndexFunc(r.Results, func(x Result) bool {
		return x.Where == where && x.Scenario == scenario && x.Case == name && x.Setup == setup
	})
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}
