package lab

import (
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// Kernel log levels; lower is worse.
const (
	LevelErr     = 3
	LevelWarning = 4
	LevelNotice  = 5
	LevelInfo    = 6
)

// LogLine is one line of the kernel's log.
type LogLine = proto.KmsgRecord

// Warnings picks the kernel's lines of level warning or worse that name a
// driver, as in "nouveau 0000:00:02.0: fifo: ..." or in a warning's source
// path. With "" it picks those of all drivers.
func Warnings(log []LogLine, driver string) []LogLine {
	driver = strings.ToLower(driver)
	var out []LogLine
	for _, l := range log {
		const kernel = 0 // programs that write to /dev/kmsg have other facilities
		if l.Facility == kernel && l.Level <= LevelWarning && strings.Contains(strings.ToLower(l.Text), driver) {
			out = append(out, l)
		}
	}
	return out
}
