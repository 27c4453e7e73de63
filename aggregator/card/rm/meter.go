package rm

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// meter is the use of a card by channel.
//
// The time of an engine is that between the two stamps of each batch. While several channels have a batch under way, each gets
// the part that its time slice gives it: the card does not say when it changes channels. So a channel that waits for
// a semaphore in a batch is charged, although the card works for others meanwhile.
type meter struct{ gpu *GPU }

// account is what an engine knows of a channel. engine.mu guards it.
type account struct {
	begun   uint64 // batches whose begin is accounted for
	active  uint64 // batches that have begun and not ended, by the account
	used    time.Duration
	entries uint64 // of the guest, whose end is accounted for

	// What hung saw last, and since when.
	seen  [2]uint64
	since time.Time
}

// engine is the account of one engine of the card.
type engine struct {
	mu      sync.Mutex // guards all
	members []*channel
	at      uint64 // card's time up to which is accounted for
	marks   []mark
}

// mark is the begin or the end of a batch.
type mark struct {
	at  uint64
	ch  *channel
	end bool
}

func (e *engine) join(ch *channel) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.members = append(e.members, ch)
}

func (e *engine) leave(ch *channel) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.account()
	e.members = slices.DeleteFunc(e.members, func(o *channel) bool { return o == ch })
}

func (e *engine) advance() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.account()
}

// account divides the time since the last call. mu is held.
func (e *engine) account() {
	e.marks = e.marks[:0]
	for _, ch := range e.members {
		head := ch.head.Load()
		for ; ch.begun < head; ch.begun++ {
			at, ok := ch.ring.stamp(ch.begun, beginning)
			if !ok {
				break
			}
			e.marks = append(e.marks, mark{at, ch, false})
		}
		tail := ch.tail.Load()
		for ; tail < ch.begun; tail++ {
			at, ok := ch.ring.stamp(tail, ending)
			if !ok {
				break
			}
			ch.entries += uint64(ch.ring.batches[tail%batches].entries)
			e.marks = append(e.marks, mark{at, ch, true})
		}
		ch.tail.Store(tail)
	}
	slices.SortStableFunc(e.marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	for _, m := range e.marks {
		if m.at > e.at {
			e.divide(m.at - e.at)
			e.at = m.at
		}
		if m.end {
			m.ch.active--
		} else {
			m.ch.active++
		}
	}
}

// divide charges time to the channels that have work.
func (e *engine) divide(ns uint64) {
	all := uint64(0)
	for _, ch := range e.members {
		if ch.active > 0 && ch.onCard.Load() {
			all += ch.share.slice.Load()
		}
	}
	for _, ch := range e.members {
		if ch.active > 0 && ch.onCard.Load() {
			ch.used += time.Duration(float64(ns) * float64(ch.share.slice.Load()) / float64(all))
		}
	}
}

// hung returns the channel that keeps others from the engine, nil if none does: nothing of it has ended for so long, and
// another's work has not begun. A channel that waits for a semaphore lets others begin, so it is the one that began
// last.
func (e *engine) hung(now time.Time, limit time.Duration) (last *channel) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.account()
	waits, latest := false, uint64(0)
	for _, ch := range e.members {
		tail := ch.tail.Load()
		seen := [2]uint64{tail, ch.begun}
		if seen != ch.seen || tail == ch.head.Load() || !ch.onCard.Load() {
			ch.seen, ch.since = seen, now
			continue
		}
		if now.Sub(ch.since) < limit {
			continue
		}
		if ch.begun == tail {
			waits = true
		} else if at, _ := ch.ring.stamp(ch.begun-1, beginning); last == nil || at > latest {
			last, latest = ch, at
		}
	}
	if !waits {
		return nil
	}
	return last
}

// Use implements card.Meter.
func (m meter) Use(id uint32) (u card.Use) {
	ch := m.gpu.channel(id)
	if ch == nil {
		return u
	}
	ch.mu.Lock()
	u.Running, u.Underway = ch.runs(), !ch.gone && ch.busy()
	u.Idle = ch.may() && ch.next == ch.put && !u.Underway
	u.Barred = !ch.may()
	ch.mu.Unlock()
	e := &m.gpu.engines[ch.engine]
	e.mu.Lock()
	defer e.mu.Unlock()
	e.account()
	u.Ended, u.Busy[ch.engine] = ch.entries, ch.used
	return u
}

// OnUse implements card.Meter: the card's engines are shared by time slices, so nobody schedules by these counts.
func (meter) OnUse(func()) {}
