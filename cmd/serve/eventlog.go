package serve

import (
	"cmp"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
)

// A EventLogger tells the log what guests did that who keeps them should know: which rules they
// broke, and which mapped windows do not show them what they should. It looks at the counters
// now and then, so that a guest that breaks a million rules in a second makes one line, and no
// trap ever waits for the log.
type EventLogger struct {
	log    *slog.Logger
	seats  func() []*Endpoint
	ticker *time.Ticker
	end    chan struct{} // closed by Close
	ended  sync.WaitGroup
}

// tellInterval is how often it looks if nobody says so.
const tellInterval = time.Second

// NewEventLogger begins to look at the seats that there are each time.
func NewEventLogger(log *slog.Logger, seats func() []*Endpoint) *EventLogger {
	t := &EventLogger{log: log, seats: seats, ticker: time.NewTicker(tellInterval), end: make(chan struct{})}
	t.ended.Go(t.watch)
	return t
}

// SetInterval says how often the log hears of the same thing at most, per GPU; it is 1 s if
// nobody says so. It waits for nobody, be it that the log takes its time, or that the EventLogger
// is closed.
func (t *EventLogger) SetInterval(d time.Duration) { t.ticker.Reset(d) }

// Close ends it when it has looked once more.
func (t *EventLogger) Close() {
	close(t.end)
	t.ended.Wait()
	t.tell()
}

func (t *EventLogger) watch() {
	defer t.ticker.Stop()
	for {
		select {
		case <-t.ticker.C:
			t.tell()
		case <-t.end:
			return
		}
	}
}

func (t *EventLogger) tell() {
	for _, s := range t.seats() {
		s.tell(t.log)
	}
}

// tell tells the log what is new since it was told last.
func (s *Endpoint) tell(log *slog.Logger) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	if s.guest != nil {
		s.tellRulesLocked(log)
	}
	if s.shown != nil {
		s.tellInexactLocked(log)
	}
}

// tellRulesLocked tells of rules that a virtual GPU's guest broke, and what became of it.
// Endpoint.logMu is held.
func (s *Endpoint) tellRulesLocked(log *slog.Logger) {
	for _, c := range s.guest.Stats().Counts() {
		switch {
		case c.Rule:
			if n := s.newsLocked(c.Name, c.N); n > 0 {
				log.Warn("guest broke a rule", "gpu", s.Name, "rule", c.Name, "times", n, "swallowed", n-1, "in_all", c.N)
			}
		case c.Name == "scrub_failures":
			if n := s.newsLocked(c.Name, c.N); n > 0 {
				log.Error("a guest's memory could not be cleared; its GPU takes no client until it is", "gpu", s.Name, "times", n, "in_all", c.N)
			}
		case c.Name == "quarantines":
			if n := s.newsLocked(c.Name, c.N); n > 0 {
				log.Warn("guest quarantined", "gpu", s.Name, "times", n, "now", cmp.Or(s.guest.QuarantineReason(), "out of it again"))
			}
		}
	}
}

// tellInexactLocked tells why what a client has mapped is not what the guest is to see there,
// in which windows, and what comes of it. Endpoint.logMu is held.
func (s *Endpoint) tellInexactLocked(log *slog.Logger) {
	for _, c := range s.shown.Counts() {
		if c.Why == "" || c.Usual {
			continue
		}
		var windows []string
		times := uint64(0)
		for k, in := range c.In {
			window := homes.Kind(k).String()
			if n := s.newsLocked(c.Name+" "+window, in); n > 0 {
				windows = append(windows, window)
				times += n
			}
		}
		if times > 0 {
			log.Warn("a mapped window is not exact", "gpu", s.Name, "window", strings.Join(windows, ","), "count", c.Name, "why", c.Why, "then", c.Then, "times", times, "swallowed", times-1, "in_all", c.N)
		}
	}
}

// newsLocked is by how much a counter is more than what the log has of it. Endpoint.logMu is held.
func (s *Endpoint) newsLocked(name string, n uint64) uint64 {
	more := n - s.logged[name]
	s.logged[name] = n
	return more
}
