package lab

import (
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// Kernel log levels; lower is worse.
const (
	LevelErr     = 3
	LevelWarning = 4
	LevelNotice  = 5
	LevelInfo    = 6
)

// FacilityKernel is the facility of what the kernel itself logs; programs that
// write to /dev/kmsg have others.
const FacilityKernel = 0

// LogLine is one line of the kernel's log.
type LogLine struct {
	Level    int
	Facility int
	Time     time.Duration // since the kernel started, by the guest's clock
	Text     string
}

func (l LogLine) String() string {
	return fmt.Sprintf("[%12.6f] <%d> %s", l.Time.Seconds(), l.Level, l.Text)
}

func fromRecord(r proto.KmsgRecord) LogLine {
	return LogLine{
		Level:    r.Level,
		Facility: r.Facility,
		Time:     time.Duration(r.USec) * time.Microsecond,
		Text:     r.Text,
	}
}

// Warnings picks the kernel's lines of level warning or worse that name a
// driver, as in "nouveau 0000:00:02.0: fifo: ..." or in a warning's source
// path. With "" it picks those of all drivers.
func Warnings(log []LogLine, driver string) []LogLine {
	driver = strings.ToLower(driver)
	var out []LogLine
	for _, l := range log {
		if l.Facility == FacilityKernel && l.Level <= LevelWarning &&
			strings.Contains(strings.ToLower(l.Text), driver) {
			out = append(out, l)
		}
	}
	return out
}
