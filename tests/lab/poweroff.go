package lab

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// TimedPoweroff writes poweroffMark to the guest's kernel log. Every kernel ends with
// poweroffEnd.
const (
	poweroffMark = "powering off"
	poweroffEnd  = "reboot: Power down"
)

// consoleTime is the time at the start of a kernel's line on the console.
var consoleTime = regexp.MustCompile(`^\[ *(\d+\.\d{6})\]`)

// TimedPoweroff is Poweroff. It returns the time by the guest's clock from the request
// to the kernel's last line.
func (vm *VM) TimedPoweroff(ctx context.Context) (time.Duration, error) {
	if err := vm.Agent().Call(ctx, proto.CmdMark, proto.MarkArgs{Text: poweroffMark}, nil); err != nil {
		return 0, err
	}
	if err := vm.Poweroff(ctx); err != nil {
		return 0, err
	}
	var from, to time.Duration
	for _, l := range vm.Console() {
		m := consoleTime.FindStringSubmatch(l.Text)
		if m == nil {
			continue
		}
		at, err := time.ParseDuration(m[1] + "s")
		if err != nil {
			return 0, err
		}
		switch {
		case strings.Contains(l.Text, poweroffMark):
			from = at
		case strings.Contains(l.Text, poweroffEnd):
			to = at
		}
	}
	if from == 0 || to < from {
		return 0, fmt.Errorf("the console does not show the power-off: want %q and %q", poweroffMark, poweroffEnd)
	}
	return to - from, nil
}
