package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/fifo"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Requests are flags, not a queue: repeated requests collapse into at most one further round
// of the worker.
type Requests struct {
	Bind         fifo.Set // instance block or Bound changed
	Preempt      fifo.Set
	Doorbells    fifo.Set
	Flush        fifo.Set // of Doorbells: GP_PUT must be read again after aliases were flushed
	Reset        bool
	Schedule     bool // whether channels may run changed
	Runlist      bool
	Base         uint32 // NV_PFIFO_RUNLIST_BASE
	Count        uint32
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
	closing bool // Remove was called
	ended   bool // and the worker has ended
}

// idle reports whether no request is pending or current. Guest.mu is held.
func (g *Guest) idle() bool { return g.state.Pending.empty() && g.work.current.empty() }

func (t *Requests) empty() bool {
	return t.Bind.Empty() && t.Preempt.Empty() && t.Doorbells.Empty() && !t.Runlist && !t.Reset &&
		!t.Schedule && !t.Invalidate.Any() && t.Policy == nil
}

// unpolled reports whether no register polls for any of the requests: they are doorbells, and
// invalidates that were deferred, so that the guest saw them complete.
func (t *Requests) unpolled() bool {
	rest := *t
	rest.Doorbells = fifo.Set{}
	if !t.Invalidating {
		rest.Invalidate = shadow.Dirs{}
	}
	return rest.empty()
}
