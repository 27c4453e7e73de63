package trace

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Show writes a line for each event of a recording, and one for each method. only is the name of a GPU, or empty.
func (f *File) Show(w io.Writer, only string) error {
	of := pushbuffers{}
	several, empty := len(f.GPUs) > 1, true
	for e := new(trace.Event); f.Next(e); {
		gpu := &f.GPUs[e.GPU]
		if only != "" && gpu.Name != only {
			continue
		}
		empty = false
		head := fmt.Sprintf("%12.6f  ", time.Duration(e.At).Seconds())
		if several {
			head += fmt.Sprintf("%-8s ", gpu.Name)
		}
		var err error
		b, calls := of.calls(f, e)
		if e.Kind == trace.Words {
			for _, c := range calls {
				_, err = fmt.Fprintf(w, "%s    %s\n", head, b.text(c))
			}
		} else {
			_, err = fmt.Fprintf(w, "%s%s\n", head, f.text(e))
		}
		if err != nil {
			return err
		}
	}
	if empty && f.err == nil {
		if _, err := fmt.Fprintln(w, "The recording is empty: nothing happened while it ran."); err != nil {
			return err
		}
	}
	return f.end(w)
}

// end says how the recording ended.
func (f *File) end(w io.Writer) error {
	if f.err == nil && f.Cut {
		_, f.err = fmt.Fprintln(w, "The recording was cut off: its last event is not complete.")
	}
	return f.err
}

// text describes an event.
func (f *File) text(e *trace.Event) string {
	switch e.Kind {
	case trace.Read, trace.Write:
		return fmt.Sprintf("%s%d %s = %0*x  %v", map[trace.Kind]string{trace.Read: "R", trace.Write: "W"}[e.Kind], e.Size, f.place(e), 2*int(e.Size), e.Value, time.Duration(e.Took))
	case trace.Submit:
		return fmt.Sprintf("channel %d  submission: entries %d to %d of its ring at %#x", e.Channel, uint32(e.Value), uint32(e.Value>>32), e.Addr)
	case trace.Entry:
		va, n := trace.EntryOf(e.Value)
		return fmt.Sprintf("channel %d    entry %016x: %d words at %#x", e.Channel, e.Value, n, va)
	case trace.Code:
		text := fmt.Sprintf("%016x is no instruction", e.Value)
		if in, err := isa.Decode(e.Value, uint32(e.Addr)); err == nil {
			text = in.String()
		}
		return fmt.Sprintf("channel %d    program %010x: %016x  %s", e.Channel, e.Addr, e.Value, text)
	case trace.Busy:
		return fmt.Sprintf("channel %d  engine %v worked for %v", e.Channel, card.Engine(e.Unit), time.Duration(e.Value))
	case trace.Forward:
		return fmt.Sprintf("channel %d  scheduler: may run, %d entries more", e.Channel, e.Value)
	case trace.Pause:
		return fmt.Sprintf("channel %d  scheduler: is to leave its engine", e.Channel)
	case trace.Abort:
		return fmt.Sprintf("channel %d  scheduler: ended, its request on engine %v does not end", e.Channel, card.Engine(e.Unit))
	case trace.Interrupt:
		return "interrupt " + lineText(e.Value)
	case trace.Fault:
		return fmt.Sprintf("channel %d  fault on engine %v: %v", e.Channel, card.Engine(e.Unit), faultOf(e))
	case trace.Reset:
		return "reset of the GPU"
	}
	return fmt.Sprintf("%d events were lost here", e.Value)
}

// lineText describes an interrupt.
func lineText(v uint64) string {
	list := []string{"low"}
	if v&trace.LineLevel != 0 {
		list[0] = "high"
	}
	for _, b := range []struct {
		bit  uint64
		name string
	}{{trace.LineMSI, "MSI"}, {trace.LineEdge, "message"}, {trace.LineDisabled, "pin disabled"}} {
		if v&b.bit != 0 {
			list = append(list, b.name)
		}
	}
	return strings.Join(list, ", ")
}

// faultOf is what a Fault tells.
func faultOf(e *trace.Event) card.Fault {
	s := e.Stop()
	return card.Fault{
		Kind: min(card.Kind(s.Kind), card.Broken), Engine: card.Engine(e.Unit), VA: s.VA, Write: s.Write, Program: s.Program, Reason: shadowpt.Reason(s.Reason),
		Class: s.Class, Method: s.Method, Data: s.Data,
	}
}

// Mmiotrace writes the accesses of a GPU as the kernel's mmiotrace does, which envytools' demmio reads. The BARs have
// made-up addresses.
func (f *File) Mmiotrace(w io.Writer, gpu int) error {
	g := &f.GPUs[gpu]
	var base [len(g.BARs)]uint64
	var text, sizes strings.Builder
	next := uint64(0x1000_0000)
	for i, size := range g.BARs {
		if size != 0 {
			next = (next + size - 1) / size * size
			base[i], next = next, next+size
		}
		fmt.Fprintf(&text, " %x", base[i])
		fmt.Fprintf(&sizes, " %x", size)
	}
	if _, err := fmt.Fprintf(w, "VERSION 20070824\nPCIDEV 0100 %04x%04x 10%s 0%s 0 umbra\n", g.PCI&0xffff, g.PCI>>16, &text, &sizes); err != nil {
		return err
	}
	for i, size := range g.BARs {
		if size != 0 {
			if _, err := fmt.Fprintf(w, "MAP 0.000000 %d %#x %#x %#x 0x0 0\n", i+1, base[i], base[i], size); err != nil {
				return err
			}
		}
	}
	for e := new(trace.Event); f.Next(e); {
		if int(e.GPU) != gpu {
			continue
		}
		at, err := time.Duration(e.At).Seconds(), error(nil)
		switch {
		case e.Kind != trace.Read && e.Kind != trace.Write:
			if e.Kind != trace.Words && e.Kind != trace.Code {
				_, err = fmt.Fprintf(w, "MARK %.6f %s\n", at, f.text(e))
			}
		case int(e.Unit) < len(base):
			// The form has accesses of 1, 2 and 4 bytes.
			for rest := int(min(e.Size, 8)); rest > 0 && err == nil; {
				n := min(rest, 4)
				if n == 3 {
					n = 1
				}
				mask := uint64(1)<<(8*n) - 1
				_, err = fmt.Fprintf(w, "%s %d %.6f %d %#x %#x 0x0 0\n", map[trace.Kind]string{trace.Read: "R", trace.Write: "W"}[e.Kind], n, at, e.Unit+1, base[e.Unit]+e.Addr, e.Value&mask)
				e.Addr, e.Value, rest = e.Addr+uint64(n), e.Value>>(8*n), rest-n
			}
		}
		if err != nil {
			return err
		}
	}
	return f.err
}
