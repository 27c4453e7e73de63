package proto

import "encoding/json"

// Commands that give the card the load of a description, for as long as is asked for.
const (
	CmdThrottle       = "throttle"        // ThrottleArgs -> no result: starts, returns when each process has its channels
	CmdThrottleTotals = "throttle-totals" // no arguments -> ThrottleTotals, so far
	CmdThrottleStop   = "throttle-stop"   // no arguments -> ThrottleTotals, when all that was submitted is done
)

// ThrottleArgs say what processes do with the card.
type ThrottleArgs struct {
	Seed uint64 `json:"seed,omitempty"`
	// Load is a throttle.Load of aggregator/sched/throttle, the description that the
	// simulation takes; its times are nanoseconds.
	Load    json.RawMessage `json:"load"`
	Clients int             `json:"clients,omitempty"` // processes that each do it; 0: 1
	// GrainNS is how long one launch keeps its engine busy on an idle card. 0 is unknown:
	// each request is then one launch.
	GrainNS int64 `json:"grain_ns,omitempty"`
}

// ThrottleTotals sums what the processes did.
type ThrottleTotals struct {
	Submitted uint64 `json:"submitted"`
	Done      uint64 `json:"done"`
	Launches  uint64 `json:"launches"` // that they are
	Wrong     uint64 `json:"wrong"`    // processes whose data was not there at the end
	Error     string `json:"error,omitempty"`
}
