package gsp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Config describes a card.
type Config struct {
	// VRAM is its memory in bytes with the reserved end, see [CheckVRAM].
	VRAM uint64
	// TPCs has for each cluster how many units it has, 32 at most.
	TPCs []int
	// Objects is how many objects a guest may have. An allocation over it is answered with "no memory".
	Objects int
	// Culling is zero if nothing is drawn.
	Culling Culling
	// Log takes a line for the operator.
	Log func(format string, args ...any)
}

// Culling is what the hardware that culls by depth needs of a program: the words of GR_GET_ZCULL_INFO, and the bytes
// in which a channel's part of it is saved. A program that takes too little has its memory overrun.
type Culling struct {
	Words   [maxZcull]uint32
	Context uint32
}

// GSP is that of one guest.
type GSP struct {
	cfg  Config
	host Host
	mem  Memory

	abi       *abi
	functions map[uint32]function
	controls  map[uint32]control
	classes   map[uint32]class

	calls    *Calls // nil until GSP has booted
	objects  tree
	channels [Channels]*Object // by id

	Progress
}

// Progress is the part of the state that is small.
type Progress struct {
	Arguments         Arguments     `json:"arguments"`
	ArgumentsAt       uint64        `json:"argumentsAt"`
	Spaces            uint64        `json:"spaces"` // the last id
	BAR2              uint64        `json:"bar2"`
	Suspended         bool          `json:"suspended"` // between the unload and the boot of a suspend: the host has nothing
	Held              *Call         `json:"held"`      // the reply to the last call, while the host is not done with it
	Stopped           bool          `json:"stopped"`   // no channel is to run
	Unsupported       []Unsupported `json:"unsupported"`
	UnsupportedOthers uint64        `json:"unsupportedOthers"`
}

// State is all that GSP knows. Its objects come after their parents.
type State struct {
	Version int          `json:"version"`
	Release string       `json:"release"`
	Queues  *QueuesState `json:"queues"`
	Calls   *CallsState  `json:"calls"`
	Objects []Object     `json:"objects"`
	Progress
}

// StateVersion is the version of State that this package writes and reads.
const StateVersion = 1

// New makes the GSP of a guest, with a state that [GSP.State] returned or, with nil, before its first
// boot. The host has what the state has.
func New(cfg Config, host Host, mem Memory, st *State) (*GSP, error) {
	if err := CheckVRAM(cfg.VRAM); err != nil {
		return nil, err
	}
	if err := CheckTPCs(cfg.TPCs); err != nil {
		return nil, err
	}
	if cfg.Objects < 1 {
		return nil, fmt.Errorf("gsp: a budget of %d objects: want at least 1", cfg.Objects)
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	a := &abi570
	g := &GSP{cfg: cfg, host: host, mem: mem, abi: a, functions: a.functions(), classes: a.classes()}
	g.controls = g.tableOfControls()
	g.objects = newTree(cfg.Objects)
	if st == nil {
		return g, nil
	}
	return g, g.setState(*st)
}

// CheckTPCs returns what is wrong with the units of clusters.
func CheckTPCs(tpcs []int) error {
	if bad := func(n int) bool { return n < 1 || n > 32 }; bad(len(tpcs)) || slices.ContainsFunc(tpcs, bad) {
		return fmt.Errorf("gsp: clusters of %v units: want 1 to 32 clusters of 1 to 32 units", tpcs)
	}
	return nil
}

// State returns a copy of the state.
func (g *GSP) State() State {
	st := State{Version: StateVersion, Release: g.abi.release, Progress: g.Progress}
	for _, n := range g.objects.all() {
		st.Objects = append(st.Objects, n.Object)
	}
	if g.calls != nil {
		st.Queues, st.Calls = &g.calls.q.QueuesState, &g.calls.CallsState
	}
	return clone(st)
}

// clone copies a state deeply.
func clone(st State) (out State) {
	b, err := json.Marshal(st)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err) // a field that has no form in JSON, which the tests find
	}
	return out
}

func (g *GSP) setState(st State) error {
	if st.Version != StateVersion || st.Release != g.abi.release {
		return fmt.Errorf("gsp: state of version %d and release %s; this program reads version %d and release %s",
			st.Version, st.Release, StateVersion, g.abi.release)
	}
	st = clone(st)
	if err := g.objects.load(st.Objects); err != nil {
		return fmt.Errorf("gsp: state: %w", err)
	}
	for _, n := range g.objects.all() {
		c := &n.Channel
		switch _, there := g.classes[n.Class]; {
		case !there, c.ID >= Channels, c.Engine < 0, c.Engine >= len(Engines), n.Class == clChannel && g.channels[c.ID] != nil:
			return fmt.Errorf("gsp: state: object %#x of client %#x is no object of class %#x", n.Handle, n.Client, n.Class)
		case n.Class == clChannel:
			g.channels[c.ID] = &n.Object
		}
	}
	if st.Queues != nil && st.Calls != nil {
		if !st.Queues.valid() || slices.ContainsFunc(slices.Concat(st.Calls.Pending, st.Calls.Events), func(m []byte) bool { return len(m) < callPayload }) {
			return errors.New("gsp: state: the queues are of no use")
		}
		g.calls = &Calls{q: &Queues{mem: g.mem, QueuesState: *st.Queues}, CallsState: *st.Calls}
	}
	g.Progress = st.Progress
	return nil
}

// Boot starts GSP with the arguments that the driver has at params, and takes the calls that wait. After
// a suspend everything is as it was; else nothing is left of what was before. After an error the owner
// calls Reset.
func (g *GSP) Boot(params uint64) error {
	a, at, err := ReadArguments(g.mem, params, g.ArgumentsAt)
	if err != nil {
		return err
	}
	before := g.Arguments
	before.Resume = true
	switch {
	case !a.Resume:
		g.Reset()
		q, err := OpenQueues(g.mem, a)
		if err != nil {
			return err
		}
		g.calls = NewCalls(q)
		if err := g.objects.load(internalObjects); err != nil {
			return err
		}
	case !g.Suspended:
		return errors.New("the driver resumes a GSP that was not suspended")
	case a != before:
		return errors.New("the driver resumes with queues at another place")
	}
	g.Arguments, g.ArgumentsAt, g.Held = a, at, nil
	if g.Suspended {
		g.resume()
	}
	if err := g.Kick(); err != nil {
		return err
	}
	if g.calls != nil {
		g.calls.Send(Call{Function: evInitDone}) // a driver waits for it
	}
	return nil
}

// burst is how many elements one kick takes: more than a queue has. A guest that keeps writing kicks again.
const burst = elements + 1

// Kick carries out the calls that are in the queue, one after the other: the next one only after the host
// is done with the last. The owner calls it again when the host may have become so. After an error the
// owner calls Reset.
func (g *GSP) Kick() error {
	for range burst {
		if !g.release() || g.calls == nil || g.Suspended {
			return nil
		}
		c, taken, err := g.calls.Next(g.length)
		if err != nil || !taken {
			return err
		}
		if c != nil {
			g.call(*c)
		}
	}
	return nil
}

// Deliver sends the events that wait for room, and announces them. The owner calls it whenever the driver
// may have read some.
func (g *GSP) Deliver() {
	if g.calls != nil && !g.Suspended && len(g.calls.Events) > 0 && g.calls.Deliver() {
		g.host.Announce()
	}
}

// Reset puts GSP in its state before the boot, and ends what the host has of it. What was asked for in
// vain stays counted.
func (g *GSP) Reset() {
	g.drop()
	g.calls = nil
	g.Progress = Progress{Spaces: g.Spaces, Unsupported: g.Unsupported, UnsupportedOthers: g.UnsupportedOthers}
}

// drop ends all objects.
func (g *GSP) drop() {
	for _, n := range slices.Backward(g.objects.all()) {
		g.objects.remove(n, g.closed)
	}
	if g.BAR2 != 0 && !g.Suspended {
		g.host.SetBAR2(0)
	}
	g.BAR2 = 0
}
