package rm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

// channel is a channel of the card. The driver schedules it from its beginning to its end, but for the time that it
// is disabled with work under way: a channel that may not run and has none gets none, which costs nothing.
type channel struct {
	share  *share
	space  *space
	ev     card.ChannelEvents
	engine card.Engine
	id     uint32 // of the card, and of the worker
	token  uint32
	base   uint64 // of the guest's ring
	mask   uint32 // of its entries

	mu                 sync.Mutex // guards what follows
	committed, enabled bool
	held               int         // by who moves pages
	failed, gone       bool        // a fault ended it; it is unbound
	fault              *card.Fault // that nobody was told of
	on, enabling       bool        // the driver lets it run, or is being asked to
	slice              uint64      // that the driver knows
	put, next, get     uint32      // of the guest: its GP_PUT, up to where it was copied, and up to where it ended
	deferred           bool        // entries wait for room
	announced          bool        // work was submitted whose completion nobody was told of
	ring               ring

	head   atomic.Uint64 // batches that were submitted; changed with mu
	tail   atomic.Uint64 // batches that are accounted for; changed with engine.mu
	onCard atomic.Bool   // is on
	account
}

var _ card.Channel = (*channel)(nil)

// NewChannel implements card.Share.
func (s *share) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	if s.dead.Load() {
		return nil, errEnded
	}
	host := s.gpu.hostEngine(c.Engine)
	engine, _ := s.gpu.engineOf(host)
	ch := &channel{
		share: s, space: c.Space.(*space), ev: ev, engine: engine, on: true, slice: s.slice.Load(),
		base: c.Ring.Base, mask: 1<<c.Ring.Log2 - 1, put: c.Put, next: c.State.GPGet, get: c.State.GPGet,
	}
	if c.Ring.Log2 > 31 || c.State.GPGet > ch.mask {
		return nil, fmt.Errorf("ring of 2^%d entries, read up to %d: must be 2^31 at most, and inside", c.Ring.Log2, c.State.GPGet)
	}
	if !s.gpu.enter(ch, c.Prefer) {
		return nil, card.ErrChannels
	}
	if err := ch.open(host); err != nil {
		s.gpu.leave(ch)
		s.gpu.cfg.Log("guest %d: a channel is refused: %v", s.cfg.Number, err)
		return nil, noRoom(err)
	}
	ch.onCard.Store(true)
	s.gpu.engines[engine].join(ch)
	s.mu.Lock()
	s.channels = append(s.channels, ch)
	s.mu.Unlock()
	if s.dead.Load() {
		ch.fail(card.Fault{Kind: card.Broken, Engine: card.NoEngine, Text: errEnded.Error()})
	}
	return ch, nil
}

func (ch *channel) open(host int32) error {
	s := ch.share
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := ch.ring.open(s, ch.space, ch.id); err != nil {
		return err
	}
	classes := graphicsClasses
	if host != nvrm.Graphics {
		classes = copyClasses
	}
	var err error
	ch.token, err = s.worker.NewChannel(ch.id, worker.Channel{
		Space: ch.space.number, Engine: host, Ring: ch.ring.va + ringAt, Entries: ringEntries, Own: ch.ring.object, USERD: userdAt,
		Slice: ch.slice, Classes: classes,
	})
	if err != nil {
		ch.ring.close(s, ch.space)
	}
	return err
}

// may reports whether the channel may run. mu is held.
func (ch *channel) may() bool {
	return ch.committed && ch.enabled && ch.held == 0 && !ch.failed && !ch.gone && !ch.share.dead.Load()
}

// change changes whether the channel may run. The driver follows on the share's goroutine.
func (ch *channel) change(f func()) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	f()
	if may := ch.may(); may != ch.on || may && ch.slice != ch.share.slice.Load() {
		if may || ch.busy() {
			ch.share.look()
		}
	}
	ch.fetch()
}

// settle makes the driver's state of the channel what it must be. It belongs to the share's goroutine.
func (ch *channel) settle() (work, deferred bool) {
	s := ch.share
	ch.mu.Lock()
	may, slice, busy := ch.may(), s.slice.Load(), ch.busy()
	turn := !ch.failed && !ch.gone && (may && !ch.on || !may && ch.on && busy)
	reslice := may && ch.slice != slice
	ch.enabling = turn && may
	ch.mu.Unlock()
	if reslice {
		ch.carriedOut("set the time slice", s.worker.SetSlice(ch.id, slice))
	}
	turned := turn && ch.carriedOut("enable or disable", s.worker.Enable(ch.id, may))
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.slice = slice; turned && !ch.failed {
		ch.setOn(may)
	}
	if ch.enabling = false; ch.may() != may { // it changed during the calls
		s.look()
	}
	ch.fetch()
	return ch.busy() && !ch.failed && !ch.gone, ch.deferred
}

// carriedOut reports whether the driver did what it was asked of the channel. It may refuse, as of a channel that it has stopped, of
// which the event comes some 100 ms later. Of one that was unbound meanwhile it knows nothing.
func (ch *channel) carriedOut(what string, err error) bool {
	ch.mu.Lock()
	gone := ch.gone
	ch.mu.Unlock()
	if err == nil || gone {
		return err == nil
	}
	ch.share.gpu.cfg.Log("guest %d, channel %d: %s: %v", ch.share.cfg.Number, ch.id, what, err)
	if !refusal(err) {
		ch.share.fail(err)
	}
	return false
}

// setOn notes whether the driver lets the channel run. mu is held.
func (ch *channel) setOn(on bool) {
	ch.on = on
	ch.onCard.Store(on)
}

// leaving reports whether the channel may not run, but does.
func (ch *channel) leaving() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return !ch.may() && ch.runs()
}

// runs reports whether the card may be at work for the channel. mu is held.
func (ch *channel) runs() bool {
	return (ch.on || ch.enabling) && !ch.failed && !ch.share.dead.Load() && ch.busy()
}

// ID implements card.Channel.
func (ch *channel) ID() uint32 { return ch.id }

// USERD implements card.Channel: it is in memory of the host.
func (ch *channel) USERD() card.Run { return card.Run{} }

// Enable implements card.Channel.
func (ch *channel) Enable() { ch.change(func() { ch.enabled = true }) }

// Disable implements card.Channel.
func (ch *channel) Disable() { ch.change(func() { ch.enabled = false }) }

// Doorbell implements card.Channel.
func (ch *channel) Doorbell(put uint32) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if put > ch.mask {
		ch.failLocked(card.Fault{Kind: card.BadPointer, Engine: card.NoEngine, Data: put})
		return
	}
	ch.put = put
	ch.fetch()
}

// Running implements card.Channel. A channel without work is on no card.
func (ch *channel) Running() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.runs()
}

// Quiet implements card.Channel.
func (ch *channel) Quiet() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.failed || ch.next == ch.put && !ch.busy()
}

// Progress implements card.Channel: what has ended.
func (ch *channel) Progress() card.Progress {
	return card.Progress{GPGet: ch.State().GPGet}
}

// State implements card.Channel.
func (ch *channel) State() card.State {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.gone {
		ch.look()
	}
	return card.State{GPGet: ch.get}
}

// Stop implements card.Channel.
func (ch *channel) Stop(wait bool) (left, inTime bool) {
	ch.change(func() { ch.committed = false })
	left = !ch.Running()
	if wait {
		left = left || ch.share.await(func() bool { return !ch.Running() })
		inTime = left
	}
	return left, inTime
}

// Unbind implements card.Channel.
func (ch *channel) Unbind() {
	s := ch.share
	s.gpu.engines[ch.engine].leave(ch)
	s.mu.Lock()
	s.channels = slices.DeleteFunc(s.channels, func(o *channel) bool { return o == ch })
	s.events = slices.DeleteFunc(s.events, func(e event) bool { return e.ch == ch })
	s.mu.Unlock()
	ch.mu.Lock()
	ch.look()
	ch.gone = true
	ch.setOn(false)
	ch.mu.Unlock()
	s.changing.Lock()
	defer s.changing.Unlock()
	if !s.dead.Load() {
		s.must(s.worker.FreeChannel(ch.id))
	}
	ch.ring.close(s, ch.space)
}

// Free implements card.Channel.
func (ch *channel) Free() { ch.share.gpu.leave(ch) }
