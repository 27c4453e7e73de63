// Package proto is the language spoken between a lab machine and the agent
// inside its guest: one JSON object per line, over the guest's second serial
// port (ttyS1, 0x2f8).
//
// The package holds types only and imports little, so that the guest program can share it at no cost.
//
// A conversation:
//
//	guest: {"event":"ready","data":{"kernel":"6.12.94+deb13-amd64",...}}
//	host:  {"id":1,"cmd":"modprobe","args":{"name":"nouveau"}}
//	guest: {"id":1,"ok":true,"result":{"loaded":[{"name":"drm",...},...]}}
//	guest: {"event":"log","data":{...}}
//
// Replies carry the id of their request and may come in any order; an agent
// that runs requests side by side is free to do so. Events may come at any
// time. A line that is not a JSON object is noise (a kernel that writes to the
// wrong port, an early boot loader) and is dropped by either side; so is, by the
// agent, an object without an id.
package proto

import (
	"encoding/json"
	"fmt"
	"time"
)

// Port is the device node of the agent's end in the guest. The agent must put
// it into raw mode before it says that it is ready: the host writes nothing
// before, and an echoing terminal would answer for the agent.
const Port = "/dev/ttyS1"

// MaxLine is the longest line, in bytes, that either side accepts. Bulk data
// (a kernel log) is sent in several replies rather than in one longer line.
const MaxLine = 4 << 20

// Request asks the agent to run one command.
type Request struct {
	ID   uint64          `json:"id"` // never 0; unique within one boot
	Cmd  string          `json:"cmd"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Reply answers the request of the same ID.
type Reply struct {
	ID     uint64          `json:"id"`
	OK     bool            `json:"ok"`
	Error  string          `json:"error,omitempty"` // set exactly when OK is false
	Result json.RawMessage `json:"result,omitempty"`
}

// Event is what the agent says unasked. It has no id.
type Event struct {
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// EventReady is the first event of every boot: the agent listens.
const EventReady = "ready"

// Ready is the data of EventReady.
type Ready struct {
	Kernel string  `json:"kernel"` // uname -r
	Uptime float64 `json:"uptime"` // seconds since the kernel started, guest's clock
}

// The commands every agent has, whatever else it can do.
const (
	CmdPing     = "ping"     // no arguments, no result
	CmdKmsg     = "kmsg"     // KmsgArgs -> KmsgResult
	CmdModprobe = "modprobe" // ModprobeArgs -> ModprobeResult: the module and what it depends on
	CmdRmmod    = "rmmod"    // ModprobeArgs -> no result
	CmdPoweroff = "poweroff" // no arguments; the reply comes before the machine goes
	CmdReboot   = "reboot"   // likewise
	CmdSuspend  = "suspend"  // no arguments; the reply comes when the machine was woken up
)

// KmsgArgs selects kernel log records. Zero means from the first one kept.
type KmsgArgs struct {
	AfterSeq *uint64 `json:"after_seq,omitempty"` // only records with a greater sequence number
	Limit    int     `json:"limit,omitempty"`     // most records in one reply; 0: 4096
}

// KmsgResult holds records in the order of the log.
type KmsgResult struct {
	Records []KmsgRecord `json:"records"`
	More    bool         `json:"more,omitempty"` // Limit was reached: ask again after the last Seq
}

// KmsgRecord is one record of /dev/kmsg.
type KmsgRecord struct {
	Seq      uint64 `json:"seq"`
	Level    int    `json:"level"`    // 0 emergency ... 4 warning ... 7 debug
	Facility int    `json:"facility"` // 0 kernel, 1 user, ...
	USec     uint64 `json:"usec"`     // see Time
	Text     string `json:"text"`
}

// Time is since the kernel started, by the guest's clock.
func (r KmsgRecord) Time() time.Duration { return time.Duration(r.USec) * time.Microsecond }

func (r KmsgRecord) String() string {
	return fmt.Sprintf("[%12.6f] <%d> %s", r.Time().Seconds(), r.Level, r.Text)
}

// ModprobeArgs names a module and its parameters ("config=NvMSI=0"). As
// modprobe does, the agent adds the parameters that the kernel's command line
// gives for the module ("nouveau.config=NvMSI=0"), before these.
type ModprobeArgs struct {
	Name    string   `json:"name"`
	Options []string `json:"options,omitempty"`
}

// CmdRun runs a program of the guest's image to its end: RunArgs -> RunResult. A program that
// fails is an error, with the result.
const CmdRun = "run"

// RunArgs are a program and what it is started with.
type RunArgs struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"` // NAME=VALUE, besides those that make OpenCL use the GPU
	// TimeoutMS is when the program is killed; 0: never.
	TimeoutMS int `json:"timeout_ms,omitempty"`
}

// RunResult is how the program ended.
type RunResult struct {
	Exit   int    `json:"exit"`             // its status; -1 if a signal ended it
	Signal int    `json:"signal,omitempty"` // the number of that signal
	Output string `json:"output"`
	NS     int64  `json:"ns"` // guest time
}
