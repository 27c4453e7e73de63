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
	"slices"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is the guest whose channels these are. Its methods are called without its lock.
type Guest interface {
	gate.Guest
	Quarantined() bool
	// Completed reports a non-stall event of engines.
	Completed(card.EngineSet)
	// Failed reports an error at which the card stopped a channel.
	Failed(*Channel, card.Fault)
	// MemoryBarrier makes the card find what the guest wrote to mapped windows.
	MemoryBarrier()
	// Abort ends a channel whose request does not end on an engine.
	Abort(ch *Channel, engine card.Engine)
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

// FIFO is the channels of one guest.
type FIFO struct {
	cfg   Config
	guest Guest
	stats *Stats

	FIFOState
	channels [gf100.Channels]*Channel // the card's channels behind the table's entries
	exits    exits

	mu   sync.Mutex
	live map[*Channel]bool // that have a channel of the card
}

// FIFOState is what a FIFO knows. Only its methods change it.
type FIFOState struct {
	Table     [gf100.Channels]Entry
	Listed    Set                        // the last runlist
	Rebinding Set                        // binds and unbinds that are not complete
	Blocked   bool                       // PFIFO lets no channel run
	Served    [card.MaxEngines]uint8     // by engine: number plus one of the channel last seen on it
	Saved     [gf100.Channels]SavedState // the worker writes it, and Forget under the guest's lock
}

// Entry is what the guest asked for one of its channels.
type Entry struct {
	Inst    uint64 // of the instance block, in the guest's VRAM
	Bound   bool
	Enabled bool
}

// SavedState names the state that the card keeps of an unbound channel. A driver that binds the
// same instance block again continues with that state, also after a reset: QEMU resets the GPU when
// a guest wakes up.
type SavedState struct {
	Number uint32 // the card's channel, which is to be the same
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
	return f.channels[id]
}

// Channel returns the channel of the card behind the guest's channel id, nil if there is none.
func (f *FIFO) Channel(id uint8) *Channel { return f.channels[id] }

// Is reports whether ch still executes the guest's channel.
func (f *FIFO) Is(ch *Channel) bool { return f.channels[ch.ID] == ch }

// Enabled lists the channels that are ready and that the guest has enabled.
func (f *FIFO) Enabled() (list []*Channel) {
	for id := range uint8(gf100.Channels) {
		if ch := f.Ready(id); ch != nil && f.Table[id].Enabled {
			list = append(list, ch)
		}
	}
	return list
}

// SetEnabled notes that the guest enabled or disabled a channel.
func (f *FIFO) SetEnabled(id uint8, on bool) { f.Table[id].Enabled = on }

// SetBlocked notes whether PFIFO lets no channel run, and reports whether that changes anything.
func (f *FIFO) SetBlocked(on bool) bool {
	changed := f.Blocked != on
	f.Blocked = on
	return changed
}

// WillRebind notes that the worker has to bind or unbind a channel. Nothing goes to the card's
// channel until EndRebind.
func (f *FIFO) WillRebind(id uint8) { f.Rebinding.Add(id) }

// BeginRebind takes the card's channel out of the table, to be closed. It returns what the guest
// asked for.
func (f *FIFO) BeginRebind(id uint8) (old *Channel, want Entry) {
	old, f.channels[id] = f.channels[id], nil
	return old, f.Table[id]
}

// EndRebind puts the card's new channel, or nil, into the table. With again the guest asked for
// another bind meanwhile.
func (f *FIFO) EndRebind(id uint8, ch *Channel, again bool) {
	f.channels[id] = ch
	if !again {
		f.Rebinding.Remove(id)
	}
}

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
		ch.Disable()
		ch.ShowUSERD() // from now on the guest may reuse the memory
	}
	return true
}

// Run lets a channel run if nothing stops it. If the method at which it was held is refused
// again, that error is returned.
func (f *FIFO) Run(ch *Channel) (again card.Fault, refused bool) {
	switch {
	case ch.state.Stopped || f.Blocked || !f.Listed.Has(ch.ID):
	case ch.state.Retry:
		f.stats.count(ch.state.Failed.Kind)
		return ch.state.Failed, true
	default:
		ch.state.Saved = false
		f.cfg.Gate.Enable(ch) // at its turn
	}
	return again, false
}

// SetListed makes now the runlist. It disables channels that leave it, and returns them, and
// those that join it and may run.
func (f *FIFO) SetListed(now Set) (left, joined []*Channel) {
	was := f.Listed
	f.Listed = now
	for i, ch := range f.channels {
		id := uint8(i)
		switch {
		case ch == nil:
		case was.Has(id) && !now.Has(id):
			ch.Disable()
			left = append(left, ch)
		case now.Has(id) && !was.Has(id) && f.Table[id].Enabled && f.Ready(id) != nil:
			joined = append(joined, ch)
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
func (f *FIFO) Serving(engine card.Engine) *Channel {
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
func (f *FIFO) LastServed(engine card.Engine) *Channel {
	f.Serving(engine)
	if f.Served[engine] == 0 {
		return nil
	}
	return f.Ready(f.Served[engine] - 1)
}

// Of returns the channels of the card that execute the guest's channels in ids.
func (f *FIFO) Of(ids Set) (list []*Channel) {
	ids.Each(func(id uint8) {
		if ch := f.channels[id]; ch != nil {
			list = append(list, ch)
		}
	})
	return list
}

// Quiet reports whether no channel of the spaces that v names has anything left to do, and which of
// the spaces channels use.
func (f *FIFO) Quiet(v shadow.Dirs) (used []shadow.Key, ok bool) {
	for _, ch := range f.channels {
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

// TakeAll empties the table.
func (f *FIFO) TakeAll() (left []*Channel) {
	for id := range f.channels {
		if ch := f.channels[id]; ch != nil {
			left = append(left, ch)
		}
		f.channels[id], f.Table[id] = nil, Entry{}
	}
	return left
}

// Unlist empties the runlist, as a reset does: its channels are being unbound.
func (f *FIFO) Unlist() { f.Listed = Set{} }

// Forget forgets what the card saved of channels. No bind or unbind may be under way.
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

// ByNumber returns the card's channel id, nil if it is none of the guest's. No lock is needed.
func (f *FIFO) ByNumber(id uint32) card.Channel {
	list := f.CardChannels()
	i := slices.IndexFunc(list, func(ch card.Channel) bool { return ch.ID() == id })
	if i < 0 {
		return nil
	}
	return list[i]
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
