package machine

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// OpenCL is the scenario of programs that run on the card. Machines have Debian's Mesa for it.
const (
	OpenCL      = "opencl"
	OpenCLAbout = "OpenCL programs run in the guest, and check their results; time is that of the device by the guest's clock"
)

const mesa = "25"

// programs are the sources of the OpenCL programs, without ".c". Their sizes are their own.
var programs = []string{"backprop", "bfs", "gaussian", "hotspot", "lud", "nn", "nw", "pathfinder", "srad", "storm"}

// quickPrograms are those of a quick run.
const quickPrograms = 2

// withMesa has a machine bring what the programs need.
func withMesa(c *lab.Config) error {
	root, err := image.Source()
	if err != nil {
		return err
	}
	c.Mesa = mesa
	for _, p := range programs {
		c.Programs = append(c.Programs, filepath.Join(root, "tests/shim/programs", p+".c"))
	}
	return nil
}

// onDevice is how a program says how long its device worked, in milliseconds.
var onDevice = regexp.MustCompile(`([0-9.]+) ms on the device`)

// openCL runs the programs. Each compiles its kernels first, which is not part of its time.
func (l *life) openCL(ctx context.Context) error {
	for _, p := range programs[:l.pick(quickPrograms, len(programs))] {
		err := call(ctx, l, "program="+p, proto.CmdRun, proto.RunArgs{Argv: []string{p}}, func(t *scene.Take, r *proto.RunResult) error {
			m := onDevice.FindStringSubmatch(r.Output)
			if m == nil {
				return fmt.Errorf("%s does not say how long its device worked: %q", p, r.Output)
			}
			ms, err := strconv.ParseFloat(m[1], 64)
			t.Per(1)
			t.Time(ms * 1e6)
			t.Metric("program-ns", float64(r.NS))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
