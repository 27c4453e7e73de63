package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// outcome is what every run comes to, whatever it shows.
type outcome struct {
	Setup    string   `json:"setup"` // setupVirtual or setupPassThrough
	OK       bool     `json:"ok"`
	Error    string   `json:"error,omitempty"`   // what ended the run before its end
	Stopped  bool     `json:"stopped,omitempty"` // by who ran it: nothing is said of what was not done
	QEMU     string   `json:"qemu"`
	Accel    string   `json:"accel"`
	AccelWhy string   `json:"accel_why"`
	Control  bool     `json:"control,omitempty"` // the card's engines do nothing
	Checks   []check  `json:"checks"`
	Phases   []phase  `json:"phases,omitempty"`
	Log      []string `json:"diagnosis,omitempty"` // of a run that ended early
}

// The set-ups.
const (
	setupVirtual     = "virtual"
	setupPassThrough = "pass-through"
)

// judge decides: every check was made and held, and nothing else went wrong.
func (o *outcome) judge() {
	o.OK = o.Error == "" && !o.Stopped && len(o.Checks) > 0
	for _, c := range o.Checks {
		o.OK = o.OK && c.OK
	}
}

// end notes what ended the run, and judges. Who interrupts a run wants no list of
// what could not be done any more.
func (o *outcome) end(ctx context.Context, err error) {
	if err != nil {
		o.Error = err.Error()
	}
	o.judge()
	if !o.OK && interrupted(ctx) {
		o.Stopped, o.Error, o.Log = true, "", nil
	}
}

// interrupted tells whether the run was, and not only out of time.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// result is all that came of a run in pass-through.
type result struct {
	outcome
	Kernel  string     `json:"kernel"` // of the guest
	VRAM    uint64     `json:"vram_bytes"`
	Nouveau []string   `json:"nouveau_log"` // while it probed
	Copies  []copies   `json:"copies"`
	Fences  fences     `json:"fences"`
	IRQ     interrupts `json:"interrupts"`
	Regions []traps    `json:"traps_by_region"`
	Blocks  []traps    `json:"traps_by_block"`
	Unknown uint64     `json:"undeclared_accesses"`
}

// check is one thing that must hold.
type check struct {
	Name     string        `json:"name"`
	OK       bool          `json:"ok"`
	NotRun   bool          `json:"not_run,omitempty"` // because of a check before it
	Stopped  bool          `json:"stopped,omitempty"` // before it came to its end
	Detail   string        `json:"detail,omitempty"`
	Problems []string      `json:"problems,omitempty"`
	Took     time.Duration `json:"took_ns"`
}

// fail notes why the check does not hold.
func (c *check) fail(format string, args ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}

// want notes a problem unless ok.
func (c *check) want(ok bool, format string, args ...any) {
	if !ok {
		c.fail(format, args...)
	}
}

// copies is what was copied while one check ran: by the guest's word, and by the
// card's count of each class.
type copies struct {
	Name     string            `json:"name"`
	Verified uint64            `json:"verified_bytes"`
	Moved    map[string]uint64 `json:"moved_bytes"` // by class: "9039"
	Launches uint64            `json:"launches"`    // copies that the card was asked for
}

// fences are the figures of small submissions that were waited for.
type fences struct {
	Waits      int           `json:"waits"`
	Chained    int           `json:"chained_copies"`
	Median     time.Duration `json:"median_ns"`
	P99        time.Duration `json:"p99_ns"`
	Semaphores int           `json:"semaphore_checks"`
	Doorbells  uint64        `json:"doorbells"` // of the whole run, by the card
	Released   uint64        `json:"released"`
	Waited     uint64        `json:"acquires_that_waited"`
}

// interrupts are counted where they start, where they leave, and where they end.
type interrupts struct {
	Raised    uint64 `json:"raised"`    // by the card
	Signalled uint64 `json:"signalled"` // by the server, to QEMU
	Taken     uint64 `json:"taken"`     // by the guest's kernel
	NonStall  uint64 `json:"non_stall"` // methods that asked for one
	Mode      string `json:"mode"`
}

// traps are accesses that reached the server: of a region, or of a block of
// registers.
type traps struct {
	Name   string        `json:"name"`
	Reads  uint64        `json:"reads"`
	Writes uint64        `json:"writes"`
	Time   time.Duration `json:"time_ns"`
}

// phase is a part of the run.
type phase struct {
	Name  string        `json:"name"`
	Wall  time.Duration `json:"wall_ns"`
	Guest time.Duration `json:"guest_ns,omitempty"` // by the guest's clock
}
