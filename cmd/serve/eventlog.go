package serve

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// logInterval is the time between two polls of the counters.
const logInterval = time.Second

// logEvents logs, until stop and a last time then, which rules guests broke, which requests ran for too
// long, what the last bad program did, where the card found no memory, which mapped windows show
// wrong data, and how many clients came and went without a line. It polls the counters: a guest that breaks a million rules in a second causes one line,
// and no trap waits for the log.
func logEvents(log *slog.Logger, endpoints func() []*Endpoint) (stop func()) {
	poll := func() {
		for _, e := range endpoints() {
			e.logEvents(log)
		}
	}
	end := Every(logInterval, poll)
	return func() {
		end()
		poll()
	}
}

// Every calls do at intervals on a goroutine, until stop, which waits for a call under way.
func Every(interval time.Duration, do func()) (stop func()) {
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				do()
			case <-end:
				return
			}
		}
	})
	return func() {
		close(end)
		ended.Wait()
	}
}

// logEvents logs what is new since the last call.
func (e *Endpoint) logEvents(log *slog.Logger) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	log = log.With("gpu", e.Name)
	e.logClientsLocked(log)
	if e.Virtual != nil {
		e.logGuestLocked(log)
	}
	if f := e.Device.faults; f != nil {
		total := f.ProgramFaults.Load()
		if n := e.newLocked("program_faults", total); n > 0 && e.Virtual == nil { // else logGuestLocked logs the fault
			log.Warn("a program was stopped", "count", n, "total", total, "last", *f.LastProgramFault.Load())
		}
		total = f.UnmappedDMA.N.Load()
		if n := e.newLocked("unmapped_dma", total); n > 0 {
			log.Warn("the GPU accessed a bus address that its client does not share", "count", n, "total", total, "last", *f.UnmappedDMA.Last.Load())
		}
	}
	for _, x := range e.inexact() {
		if n := e.newLocked(x.Name+" "+x.Window, x.Count); n > 0 {
			log.Warn("a mapped window is not exact", "window", x.Window, "counter", x.Name,
				"reason", x.Reason, "consequence", x.Consequence, "count", n, "total", x.Count)
		}
	}
}

// loggedCounts are the counts of a guest, besides its rules, that are logged with it.
var loggedCounts = []string{"runaways", "quarantines", "scrub_failures"}

// logGuestLocked logs rules that a virtual GPU's guest broke, and what was done with it.
// Endpoint.logMu is held.
func (e *Endpoint) logGuestLocked(log *slog.Logger) {
	guest := e.Virtual.Guest
	for range len(e.Virtual.logLines) {
		log.Warn(<-e.Virtual.logLines)
	}
	stopped, all := guest.Stats().Channels.Stopped.Since(e.logged["stopped"])
	if more := e.newLocked("stopped", all) - uint64(len(stopped)); more > 0 {
		log.Warn("the card stopped channels more often than is logged", "count", more)
	}
	for i := range stopped {
		x := &stopped[i]
		log.Warn("the card stopped a channel", "channel", x.Channel, "engine", x.Fault.Engine.String(), "reason", x.Fault.String())
	}
	for _, c := range guest.Stats().Counts() {
		if !c.Rule && !slices.Contains(loggedCounts, c.Name) {
			continue
		}
		n := e.newLocked(c.Name, c.N)
		switch {
		case n == 0:
		case c.Rule:
			log.Warn("guest broke a rule", "rule", c.Name, "count", n, "total", c.N)
		case c.Name == "scrub_failures":
			log.Error("a guest's memory could not be cleared; its GPU refuses clients until it is", "count", n, "total", c.N)
		case c.Name == "runaways":
			log.Warn("a request ran longer than limits.request: its channel was ended", "limit", guest.RequestLimit(), "count", n, "total", c.N)
		default:
			log.Warn("guest was quarantined", "count", n, "total", c.N, "reason", cmp.Or(guest.QuarantineReason(), "released since"))
		}
	}
}

// newLocked returns by how much a counter has grown since it was logged.
// Endpoint.logMu is held.
func (e *Endpoint) newLocked(name string, n uint64) uint64 {
	more := n - e.logged[name]
	e.logged[name] = n
	return more
}
