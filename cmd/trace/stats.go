package trace

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/trace"
)

// Count is how often something happened, and how long it took.
type Count struct {
	Reads, Writes uint64
	Time          time.Duration
}

// Stats counts the events of a recording.
type Stats struct {
	Length  time.Duration // up to the last event
	Kinds   map[string]uint64
	Places  map[string]*Count // registers, and regions
	Methods map[string]uint64
	Engines map[string]time.Duration // that worked, by GPU
	Lost    uint64
}

// Stats reads the rest of a recording. only is the name of a GPU, or empty.
func (f *File) Stats(only string) (*Stats, error) {
	s := &Stats{Kinds: map[string]uint64{}, Places: map[string]*Count{}, Methods: map[string]uint64{}, Engines: map[string]time.Duration{}}
	of := pushbuffers{}
	for e := new(trace.Event); f.Next(e); {
		if only != "" && f.GPUs[e.GPU].Name != only {
			continue
		}
		s.Length = max(s.Length, time.Duration(e.At))
		switch e.Kind {
		case trace.Read, trace.Write:
			c := s.Places[f.row(e)]
			if c == nil {
				c = new(Count)
				s.Places[f.row(e)] = c
			}
			if e.Kind == trace.Read {
				c.Reads++
			} else {
				c.Writes++
			}
			c.Time += time.Duration(e.Took)
		case trace.Busy:
			s.Engines[f.GPUs[e.GPU].Name+" "+card.Engine(e.Unit).String()] += time.Duration(e.Value)
		case trace.Lost:
			s.Lost += e.Value
			continue
		default:
			b, calls := of.calls(f, e)
			for _, call := range calls {
				s.Methods[b.name(call)]++
			}
		}
		s.Kinds[e.Kind.String()]++
	}
	return s, f.err
}

// row names a register without its place in an array, or a region.
func (f *File) row(e *trace.Event) string {
	if e.Unit != 0 {
		region, _, _ := strings.Cut(f.place(e), "+")
		return region
	}
	_, name, _ := strings.Cut(f.place(e), " ")
	if window, _, in := strings.Cut(name, "+"); in && f.windows(e.GPU)[window] {
		return window
	}
	if first, rest, in := strings.Cut(name, "["); in {
		_, away, _ := strings.Cut(rest, "]")
		for strings.HasPrefix(away, "[") {
			_, away, _ = strings.Cut(away, "]")
		}
		return first + away
	}
	return name
}

// windows are the names of a chip's windows on memory.
func (f *File) windows(gpu uint8) map[string]bool {
	if f.apertures[gpu] == nil {
		f.apertures[gpu] = make(map[string]bool)
		for _, r := range f.spaces[gpu].Rows() {
			if r.Aperture != 0 {
				f.apertures[gpu][r.Reg.Name] = true
			}
		}
	}
	return f.apertures[gpu]
}

// Write writes tables, most of everything first.
func (s *Stats) Write(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%.6f s; %d events lost\n\nevents\tcount\n", s.Length.Seconds(), s.Lost)
	for _, k := range byCount(s.Kinds, func(n uint64) uint64 { return n }) {
		fmt.Fprintf(w, "%s\t%d\n", k, s.Kinds[k])
	}
	fmt.Fprint(w, "\nregister\treads\twrites\ttime\n")
	for _, k := range byCount(s.Places, func(c *Count) uint64 { return c.Reads + c.Writes }) {
		c := s.Places[k]
		fmt.Fprintf(w, "%s\t%d\t%d\t%v\n", k, c.Reads, c.Writes, c.Time.Round(100))
	}
	if len(s.Engines) > 0 {
		fmt.Fprint(w, "\nengine\ttime\n")
	}
	for _, k := range byCount(s.Engines, func(d time.Duration) uint64 { return uint64(d) }) {
		fmt.Fprintf(w, "%s\t%v\n", k, s.Engines[k])
	}
	if len(s.Methods) > 0 {
		fmt.Fprint(w, "\nmethod\tcount\n")
	}
	for _, k := range byCount(s.Methods, func(n uint64) uint64 { return n }) {
		fmt.Fprintf(w, "%s\t%d\n", k, s.Methods[k])
	}
	return w.Flush()
}

// byCount sorts names, the most first.
func byCount[V any](m map[string]V, n func(V) uint64) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(n(m[b]), n(m[a])), cmp.Compare(a, b)) })
}
