package lab

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// offMark is what TimedPoweroff writes to the guest's kernel log first, and offLast what
// every kernel says last.
const (
	offMark = "powering off"
	offLast = "reboot: Power down"
)

// TimedPoweroff is Poweroff. It returns the time by the guest's clock from the request
// to the kernel's last line.
func (vm *VM) TimedPoweroff(ctx context.Context) (time.Duration, error) {
	if err := vm.Agent().Call(ctx, proto.CmdMark, proto.MarkArgs{Text: offMark}, nil); err != nil {
		return 0, err
	}
	if err := vm.Poweroff(ctx); err != nil {
		return 0, err
	}
	var from, to time.Duration
	for _, l := range vm.ConsoleLog() {
		switch {
		case strings.Contains(l.Text, offMark):
			from = l.Time
		case strings.Contains(l.Text, offLast):
			to = l.Time
		}
	}
	if from == 0 || to < from {
		return 0, errors.New("the console does not show the poweroff: it should end with \"" + offLast + "\"")
	}
	return to - from, nil
}
