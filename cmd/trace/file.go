// Package trace reads recordings of guests, and shows them in several forms.
//
// A recording is a line of text, "umbra-trace" with the version of the format and a [Header] in JSON, and then events of
// package aggregator/trace, one after the other. It may end anywhere: an event that was cut off is left out.
package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Version is that of the format.
const Version = 1

const magic = "umbra-trace"

// maxHeader bounds the first line.
const maxHeader = 1 << 20

// maxGPUs is the largest number of GPUs of a recording.
const maxGPUs = 64

// Header says what was recorded, and where.
type Header struct {
	Server string    `json:"server"` // its version
	Clock  string    `json:"clock"`  // of the times of events
	Began  time.Time `json:"began"`
	GPUs   []GPU     `json:"gpus"`
	Words  bool      `json:"pushbuffers"` // with their words
	Config string    `json:"config"`      // of the server, that makes the same GPUs
}

// Clock of the times of events.
const Clock = "nanoseconds since the recording began"

// GPU is one of those that were recorded.
type GPU struct {
	Name  string    `json:"name"`
	Chip  string    `json:"chip"`
	PCI   uint32    `json:"pci"` // vendor in the lower half, device in the upper one
	BARs  [6]uint64 `json:"bars"`
	Map   string    `json:"bar_map"` // windows that its guest reaches without a trap, so that they are not here
	Whole bool      `json:"whole"`   // it is the card
}

// Write writes a header.
func (h *Header) Write(w io.Writer) error {
	text, err := json.Marshal(h)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s %d %s\n", magic, Version, text)
	}
	return err
}

// Spaces finds the registers of a chip.
type Spaces func(chip string) (*mmio.Space, error)

// File is a recording that is read.
type File struct {
	Header
	Cut bool // the last event was not complete

	r      *bufio.Reader
	spaces []*mmio.Space // by GPU
	err    error

	apertures [maxGPUs]map[string]bool // by GPU
}

// Open begins to read a recording.
func Open(from io.Reader, spaces Spaces) (*File, error) {
	f := &File{r: bufio.NewReaderSize(from, maxHeader)}
	line, err := f.r.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	version, at := 0, ""
	if n, _ := fmt.Sscanf(string(line), magic+" %d %s", &version, &at); n != 2 {
		return nil, errors.New("not a recording; umbra trace record makes one")
	}
	if version != Version {
		return nil, fmt.Errorf("a recording of version %d; this program reads version %d, so record it again or take the umbra that did", version, Version)
	}
	at = string(line)
	if err := json.Unmarshal([]byte(at[max(0, strings.Index(at, "{")):]), &f.Header); err != nil {
		return nil, fmt.Errorf("the header of the recording: %w", err)
	}
	if n := len(f.GPUs); n == 0 || n > maxGPUs {
		return nil, fmt.Errorf("a recording of %d GPUs; it must be 1 to %d", n, maxGPUs)
	}
	for _, g := range f.GPUs {
		s, err := spaces(g.Chip)
		if err != nil {
			return nil, err
		}
		f.spaces = append(f.spaces, s)
	}
	return f, nil
}

// Next reads the next event. It returns false at the end, or at an error that Err returns.
func (f *File) Next(e *trace.Event) bool {
	var b [trace.EventSize]byte
	switch _, err := io.ReadFull(f.r, b[:]); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Cut = true
		return false
	case err != nil:
		if !errors.Is(err, io.EOF) {
			f.err = err
		}
		return false
	}
	e.Parse(b[:])
	if !e.Kind.Known() || int(e.GPU) >= len(f.GPUs) {
		f.err = fmt.Errorf("an event of kind %d of GPU %d; this recording has kinds 1 to %d and %d GPUs: the file is damaged", e.Kind, e.GPU, trace.Lost, len(f.GPUs))
		return false
	}
	return true
}

// Err is why Next ended early, or nil.
func (f *File) Err() error { return f.err }

// Find returns the number of the GPU with a name; without one, of the only GPU.
func (f *File) Find(name string) (int, error) {
	var names []string
	for i, g := range f.GPUs {
		if g.Name == name || name == "" && len(f.GPUs) == 1 {
			return i, nil
		}
		names = append(names, g.Name)
	}
	if name == "" {
		return 0, fmt.Errorf("missing, and the recording has several GPUs; give one of %s", strings.Join(names, ", "))
	}
	return 0, fmt.Errorf("no such GPU in the recording; give one of %s", strings.Join(names, ", "))
}

// regions are the names of what an access reaches.
var regions = [...]string{"BAR0", "BAR1", "BAR2", "BAR3", "BAR4", "BAR5", vfiouser.RegionROM: "ROM", vfiouser.RegionConfig: "PCI", "VGA"}

// place names where an access went: a register by its name.
func (f *File) place(e *trace.Event) string {
	region := fmt.Sprint("region ", e.Unit)
	if int(e.Unit) < len(regions) {
		region = regions[e.Unit]
	}
	if e.Unit == 0 {
		return fmt.Sprintf("%06x %s", e.Addr, f.spaces[e.GPU].NameOf(uint32(min(e.Addr, 1<<32-1))))
	}
	return fmt.Sprintf("%s+%06x", region, e.Addr)
}
