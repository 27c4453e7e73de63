// Shares measures how a running server shares its card, with guests in the process
// and in real time: how equal two guests' times are, what the scheduler costs, and how
// soon shares follow a change. Run it on a machine that does nothing else.
//
//	go run ./tests/shares/cmd/shares fair             # every pair of lengths, windows of 1 s
//	go run ./tests/shares/cmd/shares cost             # no scheduler, none and credit by turns
//	go run ./tests/shares/cmd/shares live             # eight guests, changes of weights, caps and policies
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Options of all measurements.
type options struct {
	lengths  []time.Duration
	policies []string
	depths   []int
	ahead    int
	windows  int
	rounds   int
	length   time.Duration
	part, of int
	profile  string
	set      sched.Config
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shares:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say what to measure: fair, cost or live")
	}
	o, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}
	// As umbra serve, and one more for each guest that sleeps in a call of the system's.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + 4)
	}
	if o.profile != "" {
		out, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	switch args[0] {
	case "fair":
		return fair(o)
	case "cost":
		return cost(o)
	case "live":
		return live(o)
	}
	return fmt.Errorf("%s: must be fair, cost or live", args[0])
}

func parse(what string, args []string) (o *options, err error) {
	o = &options{set: sched.Default()}
	f := flag.NewFlagSet(what, flag.ContinueOnError)
	lengths := f.String("lengths", "200us,500us,1ms,2ms,4ms,8ms,16ms,32ms,63ms,126ms", "of requests")
	policies := f.String("policies", "none,credit", "to compare; credit:0s is credit with nothing forwarded ahead")
	f.StringVar(policies, "policy", *policies, "the same, for one")
	depths := f.String("depths", "1,2,8", "cost: how many requests of a guest are unfinished")
	f.IntVar(&o.ahead, "ahead", 0, "fair: how many requests of a guest are unfinished; 0 is 120 ms of work, 3 at least")
	f.IntVar(&o.windows, "windows", 5, "fair: of each pair and policy")
	f.IntVar(&o.rounds, "rounds", 5, "cost: of each, by turns")
	f.DurationVar(&o.length, "length", time.Second, "of a window; cost: of a turn")
	part := f.String("part", "1/1", "fair: the part I/N of the pairs")
	f.IntVar(&o.set.Depth, "depth", o.set.Depth, "requests on the card at once")
	f.StringVar(&o.profile, "cpuprofile", "", "a file for a profile")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	for _, s := range strings.Split(*lengths, ",") {
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, fmt.Errorf("lengths: %w", err)
		}
		o.lengths = append(o.lengths, d)
	}
	for _, s := range strings.Split(*policies, ",") {
		if _, err := o.schedule(s); err != nil {
			return nil, err
		}
		o.policies = append(o.policies, s)
	}
	for _, s := range strings.Split(*depths, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("depths: %w", err)
		}
		o.depths = append(o.depths, n)
	}
	if _, err := fmt.Sscanf(*part, "%d/%d", &o.part, &o.of); err != nil || o.part < 1 || o.part > o.of {
		return nil, fmt.Errorf("part: %s: must be I/N", *part)
	}
	return o, o.set.Check()
}

// schedule is the configuration of a policy by its name, with what may follow it.
func (o *options) schedule(name string) (sched.Config, error) {
	c := o.set
	name, ahead, ok := strings.Cut(name, ":")
	if ok {
		d, err := time.ParseDuration(ahead)
		if err != nil {
			return c, fmt.Errorf("policies: %w", err)
		}
		c.Ahead = d
	}
	if err := c.Policy.UnmarshalText([]byte(name)); err != nil {
		return c, err
	}
	return c, c.Check()
}
