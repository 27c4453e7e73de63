// Package fifo is PFIFO as one guest has it: the table of its channels, which of them may run, and
// the channels of the card that execute them.
//
// # Locks and goroutines
//
// The package has no goroutines. The guest's lock guards a [FIFO] and the fields of its channels;
// the caller holds it, except for methods that belong to the worker. Those wait for the card or
// copy memory, so the worker calls them without the lock, on channels that no trap can reach.
// FIFO.mu guards the list of the card's channels and is a leaf.
package fifo

import (
	"encoding/binary"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/aggregator/report"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is the guest whose channels these are. Its methods are called without its lock.
type Guest interface {
	gate.Guest
	Quarantined() bool
	// Completed reports a non-stall event of engines, by bits.
	Completed(engines uint32)
	// Failed reports an error at which the card stopped a channel.
	Failed(*Channel, report.Error)
	// Resume lets a channel continue the entry in which it was unbound.
	Resume(*Channel)
	// MemoryBarrier makes the card find what the guest wrote to mapped windows.
	MemoryBarrier()
	// Abort ends a channel whose request does not end on an engine.
	Abort(ch *Channel, engine int)
}

// Config is what the channels use.
type Config struct {
	Lock     sync.Locker // the guest's
	Channels int         // that the guest may have on the card at a time
	GPU      card.GPU
	Share    card.Share
	Gate     *gate.Gate
	Mem      *memory.Memory
	Shadows  *shadow.Shadows
}

// Entry is a channel of the guest's table: the requested state, and the card's channel behind
// it, if any.
type Entry struct {
	Inst    uint64 // of the instance block, in the guest's VRAM
	Bound   bool
	Enabled bool
	Channel *Channel
}

// FIFO is the channels of one guest.
type FIFO struct {
	cfg   Config
	guest Guest
	stats *Stats

	State
	Table [gf100.Channels]Entry
	exits exits

	Leaving *Channel // being closed, until it has left the card

	mu   sync.Mutex
	live map[*Channel]bool // that have a channel of the card
}

// State is what a FIFO knows besides its table.
type State struct {
	Listed    Set                        // the last runlist
	Rebinding Set                        // binds and unbinds that are not complete
	Blocked   bool                       // PFIFO lets no channel run
	Served    [gf100.Engines]uint8       // by engine: number plus one of the channel last seen on it
	Saved     [gf100.Channels]SavedState // written by the worker only
}

// SavedState names the state that the card keeps of an unbound channel. A driver that binds the
// same instance block again continues with that state.
type SavedState struct {
	Number uint8 // the card's channel, which is to be the same
	Token  uint64
}

// New returns the channels of a guest that has none yet.
func New(cfg Config, guest Guest, stats *Stats) *FIFO {
	return &FIFO{cfg: cfg, guest: guest, stats: stats, live: make(map[*Channel]bool)}
}

// Ready returns the channel of the card that executes the guest's channel id, nil if there is
// none or a bind of it is not complete.
func (f *FIFO) Ready(id uint8) *Channel {
	if f.Rebinding.Has(id) {
		return nil
	}
	return f.Table[id].Channel
}

// Is reports whether ch still executes the guest's channel.
func (f *FIFO) Is(ch *Channel) bool { return f.Table[ch.ID].Channel == ch }

// SetBound notes that the guest bound a channel to an instance block, or unbound it. It reports
// whether that changes anything: then the worker has to follow.
func (f *FIFO) SetBound(id uint8, inst uint64, on bool) bool {
	c := &f.Table[id]
	if !c.Bound && !on {
		return false
	}
	c.Inst, c.Bound = inst, on
	for e := range f.Served {
		if f.Served[e] == id+1 {
			f.Served[e] = 0
		}
	}
	if ch := f.Ready(id); ch != nil {
		ch.card.Disable()
		ch.ShowUSERD() // from now on the guest may reuse the memory
	}
	return true
}

// Run lets a channel run if nothing stops it. If the method at which it was held is refused
// again, that error is returned.
func (f *FIFO) Run(ch *Channel) (e report.Error, refused bool) {
	switch {
	case ch.state.Stopped || f.Blocked || !f.Listed.Has(ch.ID):
	case ch.state.Retry:
		f.stats.PBDMAErrors.Add(1)
		again := ch.state.Failed // its report is read without the lock
		return report.Error{PBDMA: &again}, true
	case f.cfg.Gate.Holds(ch): // the scheduler resumes it
	default:
		ch.state.Saved = false
		ch.card.Enable()
	}
	return e, false
}

// SetListed makes now the runlist. It disables channels that leave it, and returns them, and
// those that join it and may run.
func (f *FIFO) SetListed(now Set) (left, joined []*Channel) {
	was := f.Listed
	f.Listed = now
	for i := range f.Table {
		c, id := &f.Table[i], uint8(i)
		switch {
		case c.Channel == nil:
		case was.Has(id) && !now.Has(id):
			c.Channel.card.Disable()
			left = append(left, c.Channel)
		case now.Has(id) && !was.Has(id) && c.Enabled && f.Ready(id) != nil:
			joined = append(joined, c.Channel)
		}
	}
	return left, joined
}

// ReadRunlist returns which of the guest's channels a runlist names, false if it is outside
// the guest's memory. No lock is needed.
func (f *FIFO) ReadRunlist(base, count uint32) (listed Set, ok bool) {
	n := min(int(count&0xfff), gf100.Channels)
	b := make([]byte, n*gf100.RunlistEntrySize)
	if n > 0 && !f.cfg.Mem.Read(shadowpt.Target(base>>28&3), uint64(base&gf100.InstanceAddr)<<12, b) {
		return listed, false
	}
	for ; len(b) > 0; b = b[gf100.RunlistEntrySize:] {
		if id := binary.LittleEndian.Uint32(b); id < gf100.Channels {
			listed.Add(uint8(id))
		}
	}
	return listed, true
}

// Serving returns the guest's channel that an engine works for, nil if that is another guest's.
func (f *FIFO) Serving(engine int) *Channel {
	ch, ok := f.cfg.GPU.Serving(engine).(*Channel)
	if !ok || ch.fifo != f {
		return nil
	}
	if f.Ready(ch.ID) == ch {
		f.Served[engine] = ch.ID + 1
	}
	return ch
}

// LastServed returns the channel that Serving returned last, if it is still there.
func (f *FIFO) LastServed(engine int) *Channel {
	f.Serving(engine)
	if f.Served[engine] == 0 {
		return nil
	}
	return f.Ready(f.Served[engine] - 1)
}

// Each returns the channels of the card that execute the guest's channels in ids.
func (f *FIFO) Each(ids Set) (list []*Channel) {
	ids.Each(func(id uint8) {
		if ch := f.Table[id].Channel; ch != nil {
			list = append(list, ch)
		}
	})
	return list
}

// Quiet reports whether no channel of the spaces that v names has anything left to do, and which of
// the spaces channels use. A channel that is being unbound or taken off the card counts as quiet
// when it has no work left.
func (f *FIFO) Quiet(v shadow.Dirs) (used []shadow.Key, ok bool) {
	if ch := f.Leaving; ch != nil && v.Has(ch.Key()) && !ch.card.Quiet() {
		return nil, false
	}
	for i := range f.Table {
		ch := f.Table[i].Channel
		if ch == nil || !v.Has(ch.Key()) {
			continue
		}
		if f.cfg.Gate.Waiting(ch) || !ch.card.Quiet() {
			return nil, false
		}
		used = append(used, ch.Key())
	}
	return used, true
}

// AllSaved reports whether no channel that is being unbound has state to write to guest memory.
func (f *FIFO) AllSaved() bool {
	if f.Leaving != nil && !f.Leaving.state.Saved {
		return false
	}
	for _, ch := range f.Each(f.Rebinding) {
		if !ch.state.Saved {
			return false
		}
	}
	return true
}

// TakeAll empties the table.
func (f *FIFO) TakeAll() (left []*Channel) {
	for i := range f.Table {
		if ch := f.Table[i].Channel; ch != nil {
			left = append(left, ch)
		}
		f.Table[i] = Entry{}
	}
	return left
}

// Forget forgets what the card saved of channels, as a reset does.
func (f *FIFO) Forget() { f.Saved = [gf100.Channels]SavedState{} }

// CardChannels lists the card's channels that execute the guest's, and those that the card has
// not given back. A channel that is opened while pages move waits for them before it may run, see
// [FIFO.Open]. No lock is needed.
func (f *FIFO) CardChannels() (list []card.Channel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.live {
		list = append(list, ch.card)
	}
	return list
}

// setLive records a channel from its creation on the card until its memory is freed.
func (f *FIFO) setLive(ch *Channel, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on {
		f.live[ch] = true
	} else {
		delete(f.live, ch)
	}
}

func (f *FIFO) withinQuota() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.live) < f.cfg.Channels
}
