package proto

import "encoding/json"

// Commands that give the card the load of a description, for as long as is asked for.
const (
	CmdThrottle       = "throttle"        // ThrottleArgs -> ThrottleResult: starts and returns
	CmdThrottleTotals = "throttle-totals" // no arguments -> ThrottleTotals, so far
	CmdThrottleStop   = "throttle-stop"   // no arguments -> ThrottleTotals, when all that was submitted is done
)

// ThrottleArgs say what processes do with the card.
type ThrottleArgs struct {
	Node string `json:"node,omitempty"`
	Seed uint64 `json:"seed,omitempty"`
	// Load is a throttle.Load of aggregator/sched/throttle, the description that the
	// simulation takes; its times are nanoseconds.
	Load    json.RawMessage `json:"load"`
	Clients int             `json:"clients,omitempty"` // processes that each do it; 0: 1
	// GrainNS is how long one launch keeps its engine busy on an idle card. 0 is unknown:
	// each request is then one launch.
	GrainNS    int64 `json:"grain_ns,omitempty"`
	GrainBytes int   `json:"grain_bytes,omitempty"` // that a launch copies; 0: 256 KiB
}

// ThrottleResult says that each process has its channels.
type ThrottleResult struct {
	Clients int `json:"clients"`
}

// ThrottleTotals sums what the processes did.
type ThrottleTotals struct {
	Clients   int    `json:"clients"`
	Lives     uint64 `json:"lives"` // processes so far, of those that have a life
	Submitted uint64 `json:"submitted"`
	Done      uint64 `json:"done"`
	Copies    uint64 `json:"copies"`   // of those submitted, on the copy engine
	Launches  uint64 `json:"launches"` // that they are
	Wrong     uint64 `json:"wrong"`    // processes whose data was not there at the end
	Error     string `json:"error,omitempty"`
}
