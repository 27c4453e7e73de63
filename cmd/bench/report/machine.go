package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what the measurements were taken on.
type Machine struct {
	Processor  string  `json:"processor"`
	Processors int     `json:"processors"`
	MemoryMiB  uint64  `json:"memory_mib"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`
	Load       float64 `json:"load"` // of the last minute, when the run began
}

// Busy says that the machine had more to do than the run, "" if it had not: with each
// processor taken, what is measured waits for its turn, and one way to serve for longer than
// another by chance.
func (m *Machine) Busy() string {
	if m.Processors == 0 || m.Load < float64(m.Processors) {
		return ""
	}
	return fmt.Sprintf("other work kept the machine busy (load %.1f on %d processors when the run began): times and ratios are doubtful; let it end, and measure again", m.Load, m.Processors)
}

// ThisMachine describes the machine that this runs on. What the kernel does not
// tell stays empty.
func ThisMachine() Machine {
	m := Machine{Processor: "unknown processor", Processors: runtime.NumCPU(), Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.Processor = strings.TrimSpace(value)
				break
			}
		}
	}
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		m.MemoryMiB = s.Totalram * uint64(s.Unit) >> 20
		m.Load = float64(s.Loads[0]) / (1 << 16)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}
