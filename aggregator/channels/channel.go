package channels

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Channel is a guest's channel that a channel of the card executes.
type Channel struct {
	ID    uint32 // as its guest counts
	Place uint64 // names its structures for the face

	of         *Channels
	card       card.Channel
	key        shadow.Key // its address space
	space      *shadow.Space
	structures Structures

	state   ChannelState // guarded by the guest's lock
	counted bool         // in past, which guards it
	seen    seen
}

// ChannelState is what the aggregator knows of a channel, besides what the guest's structures and
// the card have.
type ChannelState struct {
	Stopped  bool       // by the aggregator: faulted or held
	Held     bool       // until the guest's driver has handled its error
	Retry    bool       // retry the method at which it was held
	Failed   card.Fault // at which it was held
	LastPut  uint32     // the guest's GP_PUT as of its last doorbell; aliases may not be flushed yet
	PutSeq   uint64     // counts changes of LastPut: GP_PUT wraps around
	RoundPut uint32     // LastPut when the round began; its end submits up to here

	// Saved says that the channel's state was written to the guest's structures and that it
	// has not run since.
	Saved bool
}

// Stop records a fault of the channel. The channel stays off the card until the driver has
// handled the fault or, if the channel has ended, binds it again.
func (ch *Channel) Stop(f card.Fault) {
	ch.Disable() // the guest may have enabled it meanwhile
	ch.state.Stopped, ch.state.Held, ch.state.Retry = true, f.Kind.From() != card.MMU, false
	ch.state.Failed = f
	if ch.Ended() {
		ch.of.cfg.Gate.GiveUp(ch)
	}
}

// EngineFault is the fault with which an engine ends the channel.
func EngineFault(e card.Engine) card.Fault {
	return card.Fault{Kind: card.Translation, Engine: e, Reason: shadowpt.PageNotPresent}
}

// Halt stops the channel without an error to report.
func (ch *Channel) Halt() {
	ch.state.Stopped = true
	ch.Disable()
}

// Disable stops the channel between two steps, until Run lets it run again.
func (ch *Channel) Disable() { ch.of.cfg.Gate.Disable(ch) }

// Ended reports whether the channel stopped for good.
func (ch *Channel) Ended() bool { return ch.state.Stopped && !ch.state.Held }

// Continue reports that the guest's driver has handled the error that held the channel. With
// retry, the method that a PBDMA refused would be refused again: the same error is reported as
// soon as the channel may run, without asking the card. It returns false if nothing held it.
func (ch *Channel) Continue(retry bool) bool {
	if !ch.state.Held {
		return false
	}
	ch.state.Held, ch.state.Stopped, ch.state.Retry = false, false, retry
	return true
}

// Completed implements card.ChannelEvents.
func (ch *Channel) Completed(engines card.EngineSet) { ch.of.guest.Completed(engines) }

// Fault implements card.ChannelEvents.
func (ch *Channel) Fault(f card.Fault) {
	if f.Kind == card.Broken {
		ch.of.guest.Quarantine(f.Text)
		return
	}
	ch.of.stats.count(f.Kind)
	if f.Kind != card.SoftwareMethod {
		ch.of.stats.Stopped.Note(ch.ID, f)
	}
	if f.Text != "" && f.Kind.From() != card.Reader {
		ch.of.stats.NoteProgram(f.Text)
	}
	ch.of.guest.Trace().Note(stopOf(f).Event(uint16(ch.ID), uint8(f.Engine)))
	ch.of.guest.Failed(ch, f)
}

// NoteUnmappedDMA finds whether the guest's tables name memory that its client has not mapped: their
// shadow has no page then, so the card knows only the virtual address. It waits for the guest's memory.
func (ch *Channel) NoteUnmappedDMA(f card.Fault) {
	if ch.space == nil {
		return
	}
	m, format := ch.of.cfg.Mem, ch.of.cfg.Format
	s := shadowpt.Space{Limit: format.VASize()}
	s.Dir, s.Target = ch.Space()
	p, _, ok := format.Walk(m, s, f.VA)
	if at := p.Addr + f.VA - p.VA; ok && p.Target.System() {
		if _, ok := m.Translate(p.Target, at, 1, f.Write); !ok {
			ch.of.stats.UnmappedDMA.Note(at, f.Write)
		}
	}
}

// Card implements gate.Channel.
func (ch *Channel) Card() card.Channel { return ch.card }

// Number implements gate.Channel.
func (ch *Channel) Number() uint32 { return ch.ID }

// Key names its address space.
func (ch *Channel) Key() shadow.Key { return ch.key }

// Space implements gate.Channel.
func (ch *Channel) Space() (dir uint64, target shadowpt.Target) {
	return ch.key.Dir, ch.key.Target
}

// Guest implements gate.Channel.
func (ch *Channel) Guest() gate.Guest { return ch.of.guest }

// Abort implements gate.Channel.
func (ch *Channel) Abort(engine card.Engine) { ch.of.guest.Abort(ch, engine) }
