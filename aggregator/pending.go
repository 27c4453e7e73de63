package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/report"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Face shows the guest its channels as a chip has them. What it needs of the guest it declares itself.
type Face interface {
	channels.Face
	report.Receiver
	// Format is that of the guest's page tables, and Class the class of its channels.
	Format() *shadowpt.Format
	Class() uint16
	// Round does what the face asked for last. It belongs to the worker, and is called without the
	// guest's lock, after everything that must precede a change of which channels may run.
	Round(Ask) report.Notes
}

// Ask is a face's request to itself, in words that only the face understands. It travels with the round: a
// face that kept it would let channels run before invalidates that arrived with it during a round.
type Ask = [2]uint32

// Requests are flags, not a queue: repeated requests collapse into at most one further round
// of the worker.
type Requests struct {
	Bind         channels.Set // to be closed, and opened again if it is bound
	Preempt      channels.Set
	Doorbells    channels.Set
	Flush        channels.Set // of Doorbells: GP_PUT must be read again after aliases were flushed
	Reset        bool
	Follow       bool // which channels may run changed
	Asked        bool // the face asked for Ask
	Ask          Ask
	Invalidate   shadow.Dirs
	Invalidating bool             // the guest polls for an invalidate that was not deferred
	Policy       *shadowpt.Policy // change how shadows are maintained
}

// GuestState is what the facade knows of a guest besides its rooms. Guest.mu guards it.
type GuestState struct {
	Pending     Requests      // collected for the next round
	Quarantined string        // the reason; "" if the guest is not
	Errors      shadow.Bucket // at which the card stopped channels
}

// work is a guest's worker. Guest.mu guards it.
type work struct {
	current Requests // of this round
	begun   uint64   // rounds
	done    uint64
	notes   report.Notes // of this round
	closing bool         // Remove was called
	ended   bool         // and the worker has ended
}

// idle reports whether no request is pending or current. Guest.mu is held.
func (g *Guest) idle() bool { return g.state.Pending.empty() && g.work.current.empty() }

func (t *Requests) empty() bool {
	return t.Bind.Empty() && t.Preempt.Empty() && t.Doorbells.Empty() && !t.Asked && !t.Reset &&
		!t.Follow && !t.Invalidate.Any() && t.Policy == nil
}

// unpolled reports whether no register polls for any of the requests: they are doorbells, and
// invalidates that were deferred, so that the guest saw them complete.
func (t *Requests) unpolled() bool {
	rest := *t
	rest.Doorbells = channels.Set{}
	if !t.Invalidating {
		rest.Invalidate = shadow.Dirs{}
	}
	return rest.empty()
}
