package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// Workload is a program of ours with arguments.
type Workload struct {
	Program string `json:"program"`
	Args    string `json:"args"`
}

// Workloads take our card some 50 ms, and most of that in kernels.
var Workloads = []Workload{
	{"fma", "16384 1024"}, {"integers", "16384 1024"}, {"loop", "65536"}, {"saxpy", "1048576"}, {"reduce", "4096"},
	{"histogram", "262144"}, {"matmul", "192"}, {"nbody", "1024"},
	{"backprop", "16384"}, {"bfs", "32768"}, {"gaussian", "96"}, {"hotspot", "256 4"}, {"lud", "192"}, {"nn", "1048576"},
	{"nw", "512"}, {"pathfinder", "16384 33"}, {"srad", "256 2"}, {"storm", "400"},
}

// Devices are those that are compared.
var Devices = []string{OurCard, Renderer, PoCL}

// Compiled is our card with a compiler.
const Compiled = "compiled"

// Times are milliseconds by device.
type Times map[string]float64

// Better is the time of the better of the others.
func (t Times) Better() float64 { return min(t[Renderer], t[PoCL]) }

// Ratio is the time of a device to that of the better of the others.
func (t Times) Ratio(device string) float64 { return t[device] / t.Better() }

// Measured is how long the devices took for a workload.
type Measured struct {
	Workload
	Median  Times `json:"medianMS"`
	Fastest Times `json:"fastestMS"` // says more than the median if the machine has other work
	// Processors is the median of the processor time, of the program's process and the card's.
	Processors Times `json:"processorsMS"`
	// WarpInstructions is what our card executed, in how many Launches.
	WarpInstructions uint64 `json:"warpInstructions"`
	Launches         uint64 `json:"launches"`
}

// GeometricMean is the mean of the ratios of a device.
func GeometricMean(list []Times, device string) float64 {
	sum := 0.0
	for _, t := range list {
		sum += math.Log(t.Ratio(device))
	}
	return math.Exp(sum / float64(len(list)))
}

// Comparison compares devices on the processors that this process may use.
type Comparison struct {
	Host      *Host // with PoCL
	Workloads []Workload
	Turns     int       // processes of each workload on each device, by turns
	Rounds    int       // of each process, after one that does not count
	Progress  io.Writer // may be nil
	// Compile, if not nil, makes Compiled one more device.
	Compile *jit.Config
}

// Run returns medians. All devices have as many threads as there are processors.
func (c *Comparison) Run(ctx context.Context) ([]Measured, error) {
	list := make([]Measured, len(c.Workloads))
	rounds := make([]map[string][]round, len(list))
	binaries := make([]string, len(list))
	for i, w := range c.Workloads {
		var err error
		if binaries[i], err = c.Host.compileOurs(ctx, w.Program); err != nil {
			return nil, err
		}
		list[i], rounds[i] = Measured{Workload: w, Median: make(Times), Fastest: make(Times), Processors: make(Times)}, make(map[string][]round)
		cfg := Config{
			Launched: func(*sm.Launch) { list[i].Launches++ },
			Ran: func(forms map[*isa.Form]uint64) {
				for _, n := range forms {
					list[i].WarpInstructions += n
				}
			},
		}
		if _, err := c.times(ctx, binaries[i], w, OurCard, 0, cfg); err != nil {
			return nil, err
		}
	}
	for turn := range c.Turns {
		for i, w := range c.Workloads {
			if c.Progress != nil {
				fmt.Fprintf(c.Progress, "\rturn %d of %d: %-12s", turn+1, c.Turns, w.Program)
			}
			for _, device := range c.devices() {
				took, err := c.times(ctx, binaries[i], w, device, c.Rounds, Config{})
				if err != nil {
					return nil, err
				}
				rounds[i][device] = append(rounds[i][device], took...)
			}
		}
	}
	if c.Progress != nil {
		fmt.Fprint(c.Progress, "\r\x1b[K")
	}
	for i := range list {
		m := &list[i]
		for device, list := range rounds[i] {
			var took, worked []float64
			for _, r := range list {
				took, worked = append(took, r.took), append(worked, r.worked)
			}
			m.Median[device], m.Fastest[device], m.Processors[device] = median(took), slices.Min(took), median(worked)
		}
	}
	return list, nil
}

func (c *Comparison) devices() []string {
	if c.Compile == nil {
		return Devices
	}
	return append([]string{Compiled}, Devices...)
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// round is how many milliseconds a round took, and processors worked in it.
type round struct{ took, worked float64 }

var roundLine = regexp.MustCompile(`(?m)^round \d+: ([0-9.]+) ms, ([0-9.]+) ms of processors$`)

// times runs a process of a workload, and returns the rounds after its first.
func (c *Comparison) times(ctx context.Context, binary string, w Workload, device string, rounds int, cfg Config) ([]round, error) {
	if device == Compiled {
		device, cfg.Compile = OurCard, c.Compile
	}
	var said bytes.Buffer
	threads := strconv.Itoa(runtime.GOMAXPROCS(0))
	_, err := c.Host.Run(ctx, Program{
		Argv: append([]string{binary}, strings.Fields(w.Args)...), Device: device, Config: cfg, Output: &said, Errors: &said,
		// Without Mesa's cache of programs, its renderer would compile at each launch.
		Env: []string{
			"CL_ROUNDS=" + strconv.Itoa(1+rounds), "LP_NUM_THREADS=" + threads, "POCL_CPU_MAX_CU_COUNT=" + threads,
			"MESA_SHADER_CACHE_DISABLE=false", "MESA_SHADER_CACHE_DIR=" + fetch.WorkDir,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("on %s: %w\n%s", device, err, &said)
	}
	var out []round
	for _, m := range roundLine.FindAllStringSubmatch(said.String(), -1) {
		took, err := strconv.ParseFloat(m[1], 64)
		worked, also := strconv.ParseFloat(m[2], 64)
		if err := errors.Join(err, also); err != nil {
			return nil, err
		}
		out = append(out, round{took, worked})
	}
	if len(out) != 1+rounds {
		return nil, fmt.Errorf("%s on %s told %d times of %d:\n%s", w.Program, device, len(out), 1+rounds, &said)
	}
	return out[1:], nil
}
