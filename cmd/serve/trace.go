package serve

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/cmd/api"
	recording "github.com/umbra-gpu/umbra/cmd/trace"
)

// watch is what a device does beside the usual. It is replaced as a whole, under Device.mu.
type watch struct {
	rec   *trace.Recorder // nil if nobody records
	fault *injection      // nil if none is planted
}

// change replaces what a device does beside the usual.
func (d *Device) change(f func(w *watch)) {
	var w watch
	if now := d.watch.Load(); now != nil {
		w = *now
	}
	if f(&w); w == (watch{}) {
		d.watch.Store(nil)
	} else {
		d.watch.Store(&w)
	}
}

// plant plants a fault, or ends it if it is the one that is planted.
func (d *Device) plant(fault, instead *injection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fault != nil || d.injection() == instead {
		d.change(func(w *watch) { w.fault = fault })
	}
}

// recorder returns the recorder, nil if nobody records.
func (d *Device) recorder() *trace.Recorder {
	if w := d.watch.Load(); w != nil {
		return w.rec
	}
	return nil
}

// record begins a recording, or ends it with nil. It reports whether it did: there is one at a time.
func (d *Device) record(r *trace.Recorder) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r != nil && d.recorder() != nil {
		return false
	}
	d.change(func(w *watch) { w.rec = r })
	return true
}

// noteLine records the state of the interrupt.
func (d *Device) noteLine(l card.Line) {
	r := d.recorder()
	if r == nil {
		return
	}
	var v uint64
	for i, on := range [...]bool{l.Level, l.Edge, l.MSI, l.Disabled} { // in the order of the bits
		if on {
			v |= 1 << i
		}
	}
	r.Note(trace.Event{Kind: trace.Interrupt, Value: v})
}

// A recording takes events that often, or when a ring is half full.
const traceTick = 5 * time.Millisecond

// traceRoom is how many events of a GPU wait to be written: some 100 ms of the traps of the fastest guest, in 2.6 MB.
const traceRoom = 1 << 16

// mostRead bounds how many events are read from a guest's memory at a time, in 5 MB: it may submit more than anyone can write.
const mostRead = 1 << 17

// recorded is a GPU in a recording.
type recorded struct {
	*Endpoint
	rec      *trace.Recorder
	programs *recording.Programs
	blocks   int // of programs that may be read in this round
}

// mostBlocks bounds how much of programs is read at a time, 2 MB: launches are cheap for a guest.
const mostBlocks = 1 << 14

// Trace implements api.Backend. It records GPUs until ctx ends, the time is over, w fails, or the last of them was removed.
func (s *Server) Trace(ctx context.Context, r api.TraceRequest, w io.Writer) error {
	list := s.Endpoints()
	if r.GPU != "" {
		e, err := s.find(r.GPU)
		if err != nil {
			return err
		}
		list = []*Endpoint{e}
	}
	if len(list) == 0 {
		return api.Conflict("gpu", "", "there is no GPU to record; umbra gpu add makes one")
	}
	saved, err := s.Save()
	if err != nil {
		return err
	}
	ready, began := make(chan struct{}, 1), time.Now()
	h := recording.Header{Server: s.Version, Clock: recording.Clock, Began: began, Words: r.Pushbuffers, Config: saved.YAML}
	var gpus []recorded
	defer func() {
		for _, g := range gpus {
			g.setTrace(nil)
			s.log.Info("the recording of a GPU ended", "gpu", g.Name)
		}
	}()
	for i, e := range list {
		g := recorded{e, trace.New(uint8(i), began, traceRoom, ready), new(recording.Programs), 0}
		if !g.setTrace(g.rec) {
			return api.Conflict("gpu", e.Name, "GPU %s is being recorded; end that recording first", e.Name)
		}
		gpus = append(gpus, g)
		h.GPUs = append(h.GPUs, s.headerOf(e))
		s.log.Info("a GPU is being recorded", "gpu", e.Name, "pushbuffers", r.Pushbuffers)
	}
	if err := h.Write(w); err != nil {
		return err
	}
	return drain(ctx, gpus, r, w, ready)
}

// drain writes events until the recording ends.
func drain(ctx context.Context, gpus []recorded, r api.TraceRequest, w io.Writer, ready <-chan struct{}) error {
	end := time.NewTimer(cmp.Or(r.For, 1<<62))
	defer end.Stop()
	tick := time.NewTicker(traceTick)
	defer tick.Stop()
	var events []trace.Event
	var out []byte
	for last := false; !last; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			last = true
		case <-ready:
		case <-tick.C:
		}
		out, events = out[:0], events[:0]
		gone := 0
		for i := range gpus {
			g := &gpus[i]
			events = g.take(events, r.Pushbuffers)
			select {
			case <-g.served:
				gone++
			default:
			}
		}
		last = last || gone == len(gpus)
		for i := range events {
			out = events[i].Append(out)
		}
		if len(out) == 0 {
			continue
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	return nil
}

// take appends what a GPU has, with what its submissions name.
func (g *recorded) take(list []trace.Event, words bool) []trace.Event {
	before, unread, last := len(list), uint64(0), trace.Event{}
	taken := g.rec.Take(nil)
	g.blocks = mostBlocks
	for _, e := range taken {
		switch list = append(list, e); {
		case e.Kind != trace.Submit || g.Virtual == nil:
		case len(list)-before > len(taken)+mostRead:
			unread, last = unread+1, e
			list = g.programs.Of(list, e, nil) // it must know where pushbuffers begin
		default:
			list = g.read(list, e, words)
		}
	}
	if unread > 0 {
		list = append(list, trace.Event{At: last.At, GPU: last.GPU, Kind: trace.Lost, Value: unread})
	}
	return list
}

// read appends what a submission names.
func (g *recorded) read(list []trace.Event, e trace.Event, words bool) []trace.Event {
	guest, from := g.Virtual.Guest, len(list)
	code := func(channel uint16, va uint64, p []byte) bool {
		g.blocks--
		return g.blocks >= 0 && guest.ReadCode(channel, va, p)
	}
	list = g.programs.Of(guest.Submitted(list, e, words), e, code)
	for _, w := range list[from:] {
		list = g.programs.Of(list, w, code)
	}
	return list
}

// setTrace begins or ends the recording of a GPU.
func (e *Endpoint) setTrace(r *trace.Recorder) bool {
	if !e.Device.record(r) {
		return false
	}
	if e.Virtual != nil {
		e.Virtual.Guest.SetTrace(r)
	}
	return true
}

// headerOf describes a GPU for a recording.
func (s *Server) headerOf(e *Endpoint) recording.GPU {
	g := recording.GPU{Name: e.Name, Chip: e.Config.Device.Name(), Map: e.Config.Share.Map.String(), Whole: e.Virtual == nil}
	if g.Whole {
		g.Map = s.Config.Card.BARMap.String()
	}
	for bar := range g.BARs {
		g.BARs[bar] = e.Device.fn.BARSize(bar)
	}
	var id [4]byte
	e.Device.fn.ReadConfig(0, id[:])
	g.PCI = binary.LittleEndian.Uint32(id[:])
	return g
}
