package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// maxOutput is how much of a program's output is kept.
const maxOutput = 256 << 10

// output keeps the start of what is written to it.
type output struct{ kept bytes.Buffer }

func (o *output) Write(p []byte) (int, error) {
	o.kept.Write(p[:min(len(p), maxOutput-o.kept.Len())])
	return len(p), nil
}

// Run runs a program to its end. It has the environment of this process.
func (s *System) Run(a proto.RunArgs) (r proto.RunResult, err error) {
	if len(a.Argv) == 0 {
		return r, errors.New("no program: argv is empty")
	}
	ctx := context.Background()
	if a.TimeoutMS > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(a.TimeoutMS)*time.Millisecond, fmt.Errorf("killed after %d ms", a.TimeoutMS))
		defer cancel()
	}
	var out output
	cmd := exec.CommandContext(ctx, a.Argv[0], a.Argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(cmd.Environ(), a.Env...), &out, &out
	began := time.Now()
	err = cmd.Run()
	r = proto.RunResult{Exit: cmd.ProcessState.ExitCode(), Output: out.kept.String(), NS: time.Since(began).Nanoseconds()}
	if p := cmd.ProcessState; p != nil {
		r.Signal = max(0, int(p.Sys().(syscall.WaitStatus).Signal())) // -1 if none ended it
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrNotFound) {
		programs, _ := filepath.Glob("/programs/*") // fails only for a bad pattern
		return r, fmt.Errorf("%s: no such program; the guest has some of Debian's in /usr/bin, and in /programs %v", a.Argv[0], programs)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", a.Argv[0], err, r.Output)
	}
	return r, err
}
