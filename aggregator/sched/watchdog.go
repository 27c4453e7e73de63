package sched

import (
	"slices"
	"time"
)

// Turns do not end a request that never ends. So when engines have worked for one for too long, its group
// gets no turns for a while, then its channel is aborted. A guest with several such requests is
// quarantined. The requests of others waited for it, so their time counts from zero again.

// WatchState is how far the escalation went on an engine.
type WatchState uint8

// The states.
const (
	Quiet    WatchState = iota
	Warned              // the group of the request gets no turns
	Aborting            // the caller has to abort the channel
	Stuck               // the caller has not aborted it in time
)

// Watch is the watchdog of an engine.
type Watch struct {
	State   WatchState
	Channel ID
	Group   ID            // that is stopped
	Since   time.Duration // of this state; while it is quiet, when to look again at the soonest
}

// AlertKind is what is to be done.
type AlertKind uint8

// The kinds.
const (
	Warn       AlertKind = iota // nothing yet: a request runs for too long
	Abort                       // report it to its guest, tell the card, call Aborting, and Aborted when it has left
	Quarantine                  // the guest's device gets no turns until Release
	Reset                       // the card does not abort: the engine needs a reset, then Aborted
)

var alertNames = [...]string{"warn", "abort", "quarantine", "reset"}

func (k AlertKind) String() string { return alertNames[k] }

// Alert is a request to the caller.
type Alert struct {
	Kind    AlertKind
	Engine  int
	Channel ID
	Guest   ID
}

// Alert returns the oldest alert, false if there is none.
func (s *Scheduler) Alert() (Alert, bool) {
	if len(s.Alerts) == 0 {
		return Alert{}, false
	}
	a := s.Alerts[0]
	s.Alerts = slices.Delete(s.Alerts, 0, 1)
	return a, true
}

// RequestLimit is how long one request of a guest may run; 0 is for ever.
func (s *Scheduler) RequestLimit(guest ID) time.Duration {
	if n := s.find(guest); n != none {
		return s.watchdog().limit(n)
	}
	return 0
}

// Aborting reports that the caller has told the card to end a channel: the grace of the card begins.
func (s *Scheduler) Aborting(now time.Duration, ch ID) {
	s.advance(now)
	for e := range s.Engines {
		if w := &s.Engines[e].Watch; w.State != Quiet && w.Channel == ch {
			w.State, w.Since = Aborting, s.Now
			s.watchdog().withdraw(ch)
		}
	}
}

// Aborted reports that a channel was taken off the card. All its entries are dropped. Call
// Complete before, without entries, for the time of its last request.
func (s *Scheduler) Aborted(now time.Duration, ch ID) {
	c := s.channel(now, ch)
	if c == none {
		return
	}
	for e := range s.Engines {
		if s.Nodes[c].Lanes[e].Inflight > 0 {
			s.Engines[e].Progress = s.Now
		}
		if s.Engines[e].Running == ch {
			s.Engines[e].Running = 0
		}
	}
	guilty := s.watchdog().cleared(c)
	s.drop(c, true)
	s.Nodes[c].Chan.Stalled = false // nothing is left that would be counted
	if guilty {
		s.watchdog().offend(s.guestOf(c))
	}
	s.reap(c)
}

// Release ends a guest's quarantine.
func (s *Scheduler) Release(now time.Duration, guest ID) bool {
	s.advance(now)
	n := s.find(guest)
	if n == none || n == root {
		return false
	}
	s.Nodes[n].Guest.Offences = 0
	s.Nodes[n].Block &^= Quarantined
	for e := range s.Engines {
		s.period(s.Nodes[n].Parent, e)
		s.policy.Arrive(n, e) // as after a time without work
	}
	return true
}

// watchdog owns the Watch of each engine, the alerts, and the reasons Stopped and Quarantined.
type watchdog struct{ *core }

func (s *Scheduler) watchdog() watchdog { return watchdog{&s.core} }

// limit is how long one request of a node at or below a guest may run; 0 is for ever.
func (s watchdog) limit(n int32) time.Duration {
	if limit := s.Nodes[s.guestOf(n)].Config.Limit; limit != 0 {
		return max(limit, 0) // Forever is below
	}
	return s.Config.Watchdog.Limit
}

// leastLimit is the shortest of all guests'.
func (s watchdog) leastLimit() time.Duration {
	least := s.Config.Watchdog.Limit
	for g := s.Nodes[root].First; g != none; g = s.Nodes[g].Next {
		if limit := s.Nodes[g].Config.Limit; limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// due is when to look at an engine again.
func (s watchdog) due(e int, least time.Duration) time.Duration {
	eng := &s.Engines[e]
	switch {
	case eng.Watch.State == Stuck:
	case eng.Watch.State != Quiet:
		return eng.Watch.Since + s.Config.Watchdog.Grace
	case s.busy(e) > 0 && least > 0:
		return max(eng.Progress+least, eng.Watch.Since)
	}
	return never
}

// timer is when to call watch.
func (s watchdog) timer() time.Duration {
	t, least := never, s.leastLimit()
	for e := range s.Engines {
		t = min(t, s.due(e, least))
	}
	return t
}

// looksPerLimit is how often the watchdog looks within the shortest limit, when that has passed
// and no request has run for too long.
const looksPerLimit = 16

// watch looks for requests that run for too long.
func (s watchdog) watch() {
	least := s.leastLimit()
	for e := range s.Engines {
		if s.Now < s.due(e, least) {
			continue
		}
		switch w := &s.Engines[e].Watch; w.State {
		case Quiet:
			if c := s.suspect(e); c != none {
				s.warn(c, e)
			} else { // its guest has a longer limit, or the channel waits: check again soon
				w.Since = s.Now + least/looksPerLimit + time.Millisecond
			}
		case Warned:
			w.State, w.Since = Aborting, s.Now
			s.alert(Abort, e)
		case Aborting:
			w.State = Stuck
			s.Counts.Stuck++
			s.alert(Reset, e)
		}
	}
}

// ran is how long the oldest request of a channel has had the engine: as the card said, and since
// then, or since the engine last completed anything. The time in which it is paused does not count.
func (s watchdog) ran(c int32, e int) time.Duration {
	ch := &s.Nodes[c].Chan
	if !s.counts(c) {
		return ch.Run
	}
	return ch.Run + s.Now - max(ch.HeadFrom, ch.Metered, s.Engines[e].Progress)
}

// suspect finds the channel whose request runs for too long, or none. If the caller does not
// call Running, it is the channel that has been on the card longest, which may be wrong.
func (s watchdog) suspect(e int) int32 {
	over := func(c int32) bool {
		if !s.keepsBusy(c, e) {
			return false
		}
		limit := s.limit(c)
		return limit > 0 && s.ran(c, e) >= limit
	}
	found := none
	if c := s.find(s.Engines[e].Running); c != none {
		if over(c) {
			found = c
		}
		return found
	}
	for n := range s.Nodes {
		if c := int32(n); over(c) && (found == none || s.Nodes[c].Chan.Issued < s.Nodes[found].Chan.Issued) {
			found = c
		}
	}
	return found
}

// exceeds warns of a request whose engine time is over its limit. Others that had turns meanwhile
// made progress, so that the engine is not late.
func (s watchdog) exceeds(c int32, e int) {
	if ch := &s.Nodes[c].Chan; ch.OnCard > 0 && s.Engines[e].Watch.State == Quiet {
		if limit := s.limit(c); limit > 0 && ch.Run >= limit {
			s.warn(c, e)
		}
	}
}

func (s watchdog) warn(c int32, e int) {
	group := s.Nodes[c].Parent
	s.Engines[e].Watch = Watch{Warned, s.id(c), s.id(group), s.Now}
	s.Nodes[group].Block |= Stopped
	s.alert(Warn, e)
}

func (s watchdog) alert(k AlertKind, e int) {
	w := &s.Engines[e].Watch
	c := s.find(w.Channel)
	if c == none || len(s.Alerts) >= 4*MaxEngines+len(s.Nodes) {
		return
	}
	s.Alerts = append(s.Alerts, Alert{k, e, w.Channel, s.id(s.guestOf(c))})
}

// cleared ends the escalation of a channel's request, and resumes its group. It reports whether there was
// one.
func (s watchdog) cleared(c int32) (was bool) {
	for e := range s.Engines {
		w := &s.Engines[e].Watch
		if w.State == Quiet || w.Channel != s.id(c) {
			continue
		}
		if g := s.find(w.Group); g != none {
			s.Nodes[g].Block &^= Stopped
		}
		s.withdraw(w.Channel)
		*w, was = Watch{}, true
		s.Engines[e].Progress = s.Now
	}
	return was
}

// withdraw drops the alerts about a channel.
func (s watchdog) withdraw(ch ID) {
	s.Alerts = slices.DeleteFunc(s.Alerts, func(a Alert) bool { return a.Channel == ch })
}

// offencesWithin is how long an offence counts.
const offencesWithin = time.Minute

// offend counts a runaway request against its guest.
func (s watchdog) offend(g int32) {
	s.Counts.Runaways++
	guest, c := &s.Nodes[g].Guest, &s.Config.Watchdog
	if guest.Offences == 0 || s.Now-guest.Since > offencesWithin {
		guest.Offences, guest.Since = 0, s.Now
	}
	guest.Offences++
	if c.Offences > 0 && guest.Offences >= c.Offences && s.Nodes[g].Block&Quarantined == 0 {
		s.Nodes[g].Block |= Quarantined
		s.Alerts = append(s.Alerts, Alert{Kind: Quarantine, Guest: s.id(g)})
	}
}
