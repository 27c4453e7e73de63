package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/fifo"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// requests are flags, not a queue: repeated requests collapse into at most one further round
// of the worker.
type requests struct {
	bind       fifo.Set // inst or bound changed
	preempt    fifo.Set
	doorbells  fifo.Set
	flush      fifo.Set // of doorbells: GP_PUT must be read again after aliases were flushed
	reset      bool
	schedule   bool // whether channels may run changed
	runlist    bool
	base       uint32 // NV_PFIFO_RUNLIST_BASE
	count      uint32
	invalidate shadow.Dirs
	asked      bool             // the guest polls for an invalidate that was not deferred
	entries    bool             // apply eagerly written table entries
	policy     *shadowpt.Policy // change how shadows are maintained
}

// work is the state of a guest's worker. Guest.mu guards it. The goroutine that filled current, the
// worker for a round or a trap on the fast path, owns what belongs to the worker until it empties it
// again.
type work struct {
	pending requests // collected for the next round
	current requests // of this round, or of a trap on the fast path
	ending  bool     // current only ends channels
	begun   uint64   // rounds
	done    uint64
	closing bool // Remove was called
	ended   bool // and the worker has ended

	credits int // inline requests left until a round grants more
}

// idle reports whether no request is pending or current.
func (w *work) idle() bool { return w.pending.empty() && w.current.empty() }

func (t *requests) empty() bool {
	return t.bind.Empty() && t.preempt.Empty() && t.doorbells.Empty() && !t.runlist && !t.reset && !t.schedule && !t.invalidate.Any() && !t.entries && t.policy == nil
}

// bindsOnly reports whether there are only binds, unbinds, preempts and invalidates.
func (t *requests) bindsOnly() bool {
	rest := *t
	rest.bind, rest.preempt, rest.invalidate = fifo.Set{}, fifo.Set{}, shadow.Dirs{}
	return rest.empty()
}

// doorbellsOnly reports whether there are only doorbells: no register polls for those.
func (t *requests) doorbellsOnly() bool {
	rest := *t
	rest.doorbells = fifo.Set{}
	return rest.empty()
}
