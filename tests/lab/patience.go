package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A guest that comes up is waited for as long as its console goes on: how long a boot takes
// is the machine's business, ten times as long on a busy one, but a guest that hangs falls
// silent.

// mostSilences bounds it all, in times of Config.BootTimeout: a guest may also go round in
// circles, and talk.
const mostSilences = 10

var errSilent = errors.New("the console is silent")

// ready waits until the guest has come up n times.
func (vm *VM) ready(ctx context.Context, n int) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := silence(ctx, vm.console, vm.cfg.BootTimeout); err != nil {
			giveUp(err)
		}
	}()
	_, err := vm.agent.Ready(ctx, n)
	giveUp(nil)
	<-watched
	return err
}

// silence waits until a console has said nothing for so long, or goes on for much longer,
// and says so. It returns nil if ctx or the console ends before.
func silence(ctx context.Context, console *journal[ConsoleLine], most time.Duration) error {
	began := time.Now()
	for from := len(console.all()); ; {
		quiet, cancel := context.WithTimeoutCause(ctx, most, errSilent)
		_, next, err := console.wait(quiet, from, func(ConsoleLine) bool { return true })
		cancel()
		took := time.Since(began)
		switch {
		case err == nil && took > mostSilences*most:
			return fmt.Errorf("the guest was not up after %v, although its console goes on%s", took.Round(time.Second), busy(loadNow()))
		case err == nil:
			from = next
		case errors.Is(err, errSilent):
			return fmt.Errorf("the guest was not up after %v, and its console has said nothing for %v%s", took.Round(time.Millisecond), most, busy(loadNow()))
		default:
			return nil
		}
	}
}

// loadNow is how many threads want a processor, over the last minute; 0 if nobody knows.
func loadNow() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64) // 0 of what is no number
	return load
}

// busy says that a machine has more to do than it can, and what helps.
func busy(load float64) string {
	n := runtime.NumCPU()
	if load <= float64(n) {
		return ""
	}
	return fmt.Sprintf("; this machine has a load of %.1f on %d processors: let other work end, or run fewer guests, and try again", load, n)
}
