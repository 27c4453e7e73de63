package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/inside"
	"github.com/umbra-gpu/umbra/cmd/bench/result"
)

// Against measures with two binaries of umbra by turns, each as a child process: one repetition of
// one scenario with the one, then with the other. The binaries take the same flags.
func Against(ctx context.Context, o Options, this, other string) (*result.Run, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.BusyBytes == 0 && !o.Machines && o.asked("program") {
		var err error
		if o.BusyBytes, err = inside.Calibrate(ctx); err != nil {
			return nil, err
		}
	}
	out := result.NewRun()
	out.Notes = append(out.Notes, fmt.Sprintf("umbra bench: %s (new) against %s (old)", this, other))
	type binary struct{ name, path string }
	binaries := []binary{{result.New, this}, {result.Old, other}}
	for turn := range o.turns() {
		for _, s := range List().Scenarios {
			if !o.asked(s.Name) || o.InProcess && !s.Process || o.Machines && !s.Machines {
				continue
			}
			both := map[string]*result.Run{}
			for i := range binaries {
				b := binaries[(i+turn)%2] // neither always comes first
				fmt.Fprintf(o.Progress, "turn %d, %s, %s\n", turn+1, s.Name, b.name)
				r, err := o.child(ctx, b.path, s.Name)
				if ctx.Err() != nil {
					return out, ctx.Err()
				}
				if err != nil {
					return out, fmt.Errorf("%s: %w", b.path, err)
				}
				both[b.name] = r
			}
			for _, b := range binaries {
				out.AddRun(both[b.name], b.name)
			}
		}
	}
	return out, nil
}

func (o *Options) turns() int {
	if o.Machines {
		return o.Boots
	}
	return o.Turns
}

// child runs one repetition of one scenario.
func (o *Options) child(ctx context.Context, path, scenario string) (*result.Run, error) {
	args := []string{"bench", "run", "--only", scenario, "--out", "-"}
	if o.Machines {
		args = append(args, "--machines", "--boots", "1", "--kernels", strings.Join(o.kernels(), ","))
	} else {
		args = append(args, "--in-process", "--repeat", "1", "--work", fmt.Sprint(o.BusyBytes))
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
