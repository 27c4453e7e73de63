package proto

// Commands that keep the card busy with requests of one length, for as long as is asked for.
const (
	CmdThrottle       = "throttle"        // ThrottleArgs -> no result: starts, returns when it has its channel
	CmdThrottleTotals = "throttle-totals" // no arguments -> ThrottleTotals, so far
	CmdThrottleStop   = "throttle-stop"   // no arguments -> ThrottleTotals, when all that was submitted is done
)

// ThrottleArgs say what a process does with the card.
type ThrottleArgs struct {
	Seed     uint64 `json:"seed,omitempty"`
	BusyNS   int64  `json:"busy_ns"`            // length of a request
	Burst    int    `json:"burst"`              // requests submitted at once
	Ahead    int    `json:"ahead"`              // bursts that may be unfinished
	Requests int    `json:"requests,omitempty"` // 0: without an end
	// GrainNS is how long one launch keeps its engine busy on an idle card. 0 is unknown:
	// each request is then one launch.
	GrainNS int64 `json:"grain_ns,omitempty"`
}

// ThrottleTotals sums what the process did.
type ThrottleTotals struct {
	Submitted uint64 `json:"submitted"`
	Done      uint64 `json:"done"`
	Launches  uint64 `json:"launches"` // that they are
	Wrong     bool   `json:"wrong"`    // the data was not there at the end
	Error     string `json:"error,omitempty"`
}
