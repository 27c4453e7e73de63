package trace

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/trace"
)

// The time line has a process for each GPU, and in it these tracks; engines have one for each channel.
const (
	trackTraps = 1 + iota
	trackSubmissions
	trackScheduler
	trackInterrupts
	trackFaults
	trackEngines
)

var trackNames = map[int]string{
	trackTraps: "traps", trackSubmissions: "submissions", trackScheduler: "scheduler", trackInterrupts: "interrupts", trackFaults: "faults",
}

// slice is an event of Chrome's JSON form, which Perfetto reads. Times are in microseconds.
type slice struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Took  float64        `json:"dur,omitempty"`
	GPU   int            `json:"pid"`
	Track int            `json:"tid"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// timeline writes a recording for Perfetto.
type timeline struct {
	f     *File
	w     io.Writer
	n     int
	names map[[2]int]bool
	ends  map[[2]int]float64 // of the last slice of an engine's track
}

// Perfetto writes a time line that Perfetto, and Chrome's tracing, open. only is the name of a GPU, or empty.
func (f *File) Perfetto(w io.Writer, only string) error {
	t := &timeline{f: f, w: w, names: map[[2]int]bool{}, ends: map[[2]int]float64{}}
	if _, err := fmt.Fprintf(w, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["); err != nil {
		return err
	}
	for i, g := range f.GPUs {
		if err := t.add(slice{Name: "process_name", Phase: "M", GPU: i + 1, Args: map[string]any{"name": "GPU " + g.Name + " (" + g.Chip + ")"}}); err != nil {
			return err
		}
	}
	for e := new(trace.Event); f.Next(e); {
		if only != "" && f.GPUs[e.GPU].Name != only {
			continue
		}
		if err := t.event(e); err != nil {
			return err
		}
	}
	if f.err != nil {
		return f.err
	}
	_, err := fmt.Fprintln(w, "\n]}")
	return err
}

func (t *timeline) add(s slice) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	comma := ",\n"
	if t.n == 0 {
		comma = "\n"
	}
	t.n++
	_, err = fmt.Fprintf(t.w, "%s%s", comma, text)
	return err
}

func (t *timeline) event(e *trace.Event) error {
	s := slice{Name: t.f.text(e), Phase: "i", Scope: "t", Time: float64(e.At) / 1000, GPU: int(e.GPU) + 1}
	track := ""
	switch e.Kind {
	case trace.Read, trace.Write:
		s.Track, s.Phase, s.Scope, s.Took = trackTraps, "X", "", float64(e.Took)/1000
		s.Name, s.Args = e.Kind.String()+" "+t.f.row(e), map[string]any{"address": t.f.place(e), "value": fmt.Sprintf("%#x", e.Value)}
	case trace.Submit, trace.Entry:
		s.Track = trackSubmissions
	case trace.Busy:
		s.Track, s.Phase, s.Scope = trackEngines+int(e.Unit)<<16+int(e.Channel), "X", ""
		track = fmt.Sprintf("engine %v, channel %d", card.Engine(e.Unit), e.Channel)
		// The meter is read now and then: a slice must not begin inside the one before.
		at := [2]int{s.GPU, s.Track}
		begin := max(s.Time-float64(e.Value)/1000, t.ends[at])
		s.Name, s.Took, s.Time, t.ends[at] = fmt.Sprintf("channel %d", e.Channel), max(s.Time-begin, 0), begin, s.Time
	case trace.Forward, trace.Pause, trace.Abort:
		s.Track = trackScheduler
	case trace.Interrupt:
		s.Track = trackInterrupts
	case trace.Fault, trace.Reset:
		s.Track = trackFaults
	case trace.Words, trace.Code:
		return nil // show has them
	default:
		s.Track, s.Scope = trackTraps, "p"
	}
	if at := [2]int{s.GPU, s.Track}; !t.names[at] {
		t.names[at] = true
		if track == "" {
			track = trackNames[s.Track]
		}
		if err := t.add(slice{Name: "thread_name", Phase: "M", GPU: s.GPU, Track: s.Track, Args: map[string]any{"name": track}}); err != nil {
			return err
		}
	}
	return t.add(s)
}
