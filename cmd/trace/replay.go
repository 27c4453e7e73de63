package trace

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Device is a GPU that a recording is played to.
type Device interface {
	ReadRegion(index int, off uint64, p []byte) error
	WriteRegion(index int, off uint64, p []byte) error
	Reset() error
	RegionSize(index int) uint64
}

// Replayed is how a replay went.
type Replayed struct {
	Accesses   int
	Difference string // the first one, with what may explain it
}

// replayWait bounds the wait for a value that comes by itself, as when an engine is done.
const replayWait = time.Second

// mostAhead is how many places may have values that the recording has later.
const mostAhead = 16

// ahead are places where a card read otherwise than the recording, in order. It may have been faster: then the recording
// reads the same there later.
type ahead []early

type early struct {
	e    trace.Event
	got  uint64
	text string
}

// later drops the place of a read that gave the value for which it waits.
func (a *ahead) later(e *trace.Event) {
	*a = slices.DeleteFunc(*a, func(p early) bool { return same(&p.e, e) && p.got == e.Value })
}

// window reports whether an access is to memory, by a window into it: engines write that at their own speed, and in a replay not what
// they read from the guest.
func window(e *trace.Event) bool {
	return e.Unit > vfiouser.RegionBAR0 && e.Unit <= vfiouser.RegionBAR5
}

// pending are registers of interrupts that wait.
var pending = regexp.MustCompile(`_INTR(_\d|_LEAF|_TOP)?(\W|$)`)

// sooner reports whether a read found interrupts that the recorded guest did not see yet, and may never have looked for.
func (f *File) sooner(e *trace.Event, got uint64) bool {
	return got&e.Value == e.Value && pending.MatchString(f.place(e))
}

// Replay does to a device what a guest did to one GPU of a recording, and compares what it reads.
func (f *File) Replay(gpu int, d Device) (Replayed, error) {
	a := newAccesses(f, gpu)
	var fresh, used bool // fresh: it was reset before it was used; QEMU looks at its configuration before that
	var open ahead
	for a.more && len(open) < mostAhead {
		e := a.next
		fresh = fresh || e.Kind == trace.Reset && !used
		used = used || e.Kind != trace.Reset && e.Unit != vfiouser.RegionConfig
		if e.Kind == trace.Lost {
			return Replayed{a.n, fmt.Sprintf("the recording lost %d events here", e.Value)}, nil
		}
		if size := d.RegionSize(int(e.Unit)); e.Kind != trace.Reset && (e.Size == 0 || e.Size > 8 || e.Addr > size || uint64(e.Size) > size-e.Addr) {
			return Replayed{}, fmt.Errorf("access %d, %s: the region has %#x bytes", a.n+1, f.text(&e), size)
		}
		got, err := replayOne(d, &e)
		if err != nil {
			return Replayed{}, err
		}
		if e.Kind != trace.Read || got == e.Value || f.ofTime(&e) {
			open.later(&e)
			a.n++
			a.read()
			continue
		}
		if e, _ = a.take(); !f.sooner(&e, got) && !waitFor(d, &e, &got) && !window(&e) {
			open = append(open, early{e, got, fmt.Sprintf("access %d: %s; this card reads %0*x", a.n, f.text(&e), 2*int(e.Size), got)})
		}
	}
	if len(open) == 0 {
		return Replayed{Accesses: a.n}, f.err
	}
	text := open[0].text
	if !fresh {
		text += "; the recording does not begin with a reset of the GPU, so that what came before is missing"
	}
	if m := f.GPUs[gpu].Map; m != "none" {
		text += "; the guest could reach windows without a trap (bar-map=" + m + "), which no recording has"
	}
	return Replayed{a.n, text}, f.err
}

// replayOne does one access, and returns what was read.
func replayOne(d Device, e *trace.Event) (uint64, error) {
	var b [8]byte
	switch e.Kind {
	case trace.Reset:
		return 0, d.Reset()
	case trace.Write:
		binary.LittleEndian.PutUint64(b[:], e.Value)
		return 0, d.WriteRegion(int(e.Unit), e.Addr, b[:e.Size])
	}
	err := d.ReadRegion(int(e.Unit), e.Addr, b[:e.Size])
	return binary.LittleEndian.Uint64(b[:]), err
}

// waitFor reads until the value is that of the recording.
func waitFor(d Device, e *trace.Event, got *uint64) bool {
	for end := time.Now().Add(replayWait); *got != e.Value; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			return false
		}
		*got, _ = replayOne(d, e) // as before, when it did not fail
	}
	return true
}
