package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/result"
)

// Against measures with two binaries of umbra by turns, each as a child process: one repetition of
// one scenario with the one, then with the other. The binaries take the same flags.
func Against(ctx context.Context, o Options, this, other string) (now, old *result.Run, err error) {
	if err := o.Check(); err != nil {
		return nil, nil, err
	}
	now, old = new(result.Run), new(result.Run)
	binaries := []struct {
		path string
		out  *result.Run
	}{{this, now}, {other, old}}
	rounds := o.Rounds
	if o.Machines {
		rounds = o.Boots
	}
	for round := range rounds {
		for _, s := range scenarios() {
			if !o.asked(s.name) || o.InProcess && !s.process || o.Machines && !s.machines {
				continue
			}
			for i := range binaries {
				b := binaries[(i+round)%2] // neither always comes first
				fmt.Fprintf(o.Progress, "round %d, %s, %s\n", round+1, s.name, b.path)
				r, err := o.child(ctx, b.path, s.name)
				if ctx.Err() != nil {
					return now, old, ctx.Err()
				}
				if err != nil {
					return now, old, fmt.Errorf("%s: %w", b.path, err)
				}
				b.out.Append(r)
			}
		}
	}
	return now, old, nil
}

// child runs one repetition of one scenario.
func (o *Options) child(ctx context.Context, path, scenario string) (*result.Run, error) {
	args := []string{"bench", "run", "--only", scenario, "--out", "-"}
	if o.Machines {
		args = append(args, "--machines", "--boots", "1", "--kernels", strings.Join(o.kernels(), ","))
	} else {
		args = append(args, "--in-process", "--repeat", "1")
	}
	if o.Quick {
		args = append(args, "--quick")
	}
	if len(o.Setups) > 0 {
		args = append(args, "--setups", strings.Join(o.Setups, ","))
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("bench --only %s: %w", scenario, err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return result.Read(&stdout)
}
