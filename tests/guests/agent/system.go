package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// System is the guest's kernel, as its files show it.
type System struct {
	Root   string // "/"
	Kernel string // uname -r
}

// Release returns the kernel's release.
func (s *System) Release() string { return s.Kernel }

func (s *System) path(p string) string { return filepath.Join(s.Root, p) }

// read returns a file's first line, trimmed.
func (s *System) read(p string) (string, error) {
	b, err := os.ReadFile(s.path(p))
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line), err
}

func (s *System) write(p, text string) error {
	return os.WriteFile(s.path(p), []byte(text), 0o200)
}

func (s *System) number(p string) (uint64, error) {
	text, err := s.read(p)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 0, 64)
}

func (s *System) glob(pattern string) []string {
	found, _ := filepath.Glob(s.path(pattern)) // the patterns here are constants
	for i, f := range found {
		found[i] = strings.TrimPrefix(f, strings.TrimSuffix(s.Root, "/"))
	}
	return found
}

// DRI lists the DRM nodes and their drivers.
func (s *System) DRI() (proto.DRIResult, error) {
	res := proto.DRIResult{Nodes: []proto.DRINode{}}
	for _, p := range s.glob("dev/dri/*[0-9]") {
		n := proto.DRINode{Path: p}
		d, err := drm.Open(s.path(p))
		if err != nil {
			n.Error = err.Error()
			res.Nodes = append(res.Nodes, n)
			continue
		}
		n.Driver, err = d.Driver()
		if err = errors.Join(err, d.Close()); err != nil {
			n.Error = err.Error()
		}
		res.Nodes = append(res.Nodes, n)
	}
	return res, nil
}

// Interrupts sums lines of /proc/interrupts by the names of their actions.
func (s *System) Interrupts(a proto.InterruptsArgs) (proto.InterruptsResult, error) {
	res := proto.InterruptsResult{Lines: []proto.InterruptLine{}}
	b, err := os.ReadFile(s.path("proc/interrupts"))
	if err != nil {
		return res, err
	}
	names := []string{a.Name}
	if a.Name == "" {
		names = []string{"nvkm", "nouveau"}
	}
	rows := strings.Split(string(b), "\n")
	cpus := len(strings.Fields(rows[0]))
	for _, row := range rows[1:] {
		l, ok := parseInterrupt(row, cpus, names)
		if ok {
			res.Lines = append(res.Lines, l)
			res.Count += l.Count
		}
	}
	return res, nil
}

func parseInterrupt(row string, cpus int, names []string) (l proto.InterruptLine, ok bool) {
	irq, rest, found := strings.Cut(row, ":")
	fields := strings.Fields(rest)
	if !found || len(fields) <= cpus {
		return l, false
	}
	for _, action := range fields[cpus:] {
		for _, n := range names {
			ok = ok || strings.TrimSuffix(action, ",") == n
		}
	}
	l.IRQ, l.Chip = strings.TrimSpace(irq), strings.Join(fields[cpus:], " ")
	for _, f := range fields[:cpus] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return l, false
		}
		l.Count += n
	}
	return l, ok
}

// Poweroff does not return when it works.
func (s *System) Poweroff() error { return s.end(unix.LINUX_REBOOT_CMD_POWER_OFF) }

// Reboot does not return when it works.
func (s *System) Reboot() error { return s.end(unix.LINUX_REBOOT_CMD_RESTART) }

// Suspend suspends the machine to RAM and returns when it was woken up.
func (s *System) Suspend() error {
	return errors.Join(s.write("sys/power/mem_sleep", "deep"), s.write("sys/power/state", "mem"))
}

// replyDelay lets the UART send the reply before the machine goes.
const replyDelay = 200 * time.Millisecond

func (s *System) end(cmd int) error {
	time.Sleep(replyDelay)
	unix.Sync()
	return unix.Reboot(cmd)
}
