package rm

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// look has the goroutine look at the channels.
func (s *share) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// await waits until ok, which changes when channels are enabled or disabled. It returns false if that took too long.
func (s *share) await(ok func() bool) bool {
	const patience = 10 * time.Second
	late := false
	defer time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.settled.Broadcast()
	}).Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ok() {
		if late {
			return false
		}
		s.settled.Wait()
	}
	return true
}

// run is the goroutine. It looks again by itself while a channel has work.
func (s *share) run() {
	const soon = time.Millisecond
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-s.wake:
		case <-timer.C:
		}
		s.armed.Store(false) // who submits from here on wakes it
		work, deferred := false, false
		for _, ch := range s.list() {
			w, d := ch.settle()
			work, deferred = work || w, deferred || d
		}
		s.mu.Lock()
		s.settled.Broadcast()
		s.mu.Unlock()
		s.deliver()
		switch {
		case deferred:
			timer.Reset(soon)
		case work:
			s.armed.Store(true)
			timer.Reset(s.gpu.cfg.Hang / 20)
			s.watch()
		default:
			timer.Stop()
		}
	}
}

// watch resets a channel whose work keeps others from an engine.
func (s *share) watch() {
	for i := range s.gpu.engines {
		ch := s.gpu.engines[i].hung(time.Now(), s.gpu.cfg.Hang)
		if ch == nil || ch.share != s {
			continue
		}
		ch.carriedOut("reset", s.worker.Reset(ch.id))
		ch.fail(card.Fault{Kind: card.ProgramError, Engine: ch.engine, Text: "did not end, and kept others from the engine"})
	}
}
