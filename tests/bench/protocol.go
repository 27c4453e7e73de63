package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The targets that are the same with and without a card.
var (
	nearEcho  = atMost(1.10, "<= 1.10")
	pipelined = below(500, "< 500 ns")
)

// goFigures are what is taken from package vfiouser's benchmarks: a metric of one,
// and what it is called here.
var goFigures = []struct {
	benchmark, metric string
	name              string
	unit              unit
	target            *target
}{
	{"SocketRead", "echo-p50-ns", "bare blocking echo, round trip", nanoseconds, nil},
	{"SocketRead", "read-p50-ns", "read, round trip", nanoseconds, nil},
	{"SocketRead", "read/echo", "  read / echo", ratio, &nearEcho},
	{"SocketRead", "allocs/op", "  allocations, 200 reads and 200 echoes", perMessage, nil},
	{"PipelinedWrites32", "p50-ns/msg", "32 pipelined writes, each", nanoseconds, &pipelined},
	{"PipelinedWrites32", "cpu-ns/msg", "  processor time, client and server", nanoseconds, nil},
	{"PipelinedWrites32", "allocs/op", "  allocations, 32 messages", perMessage, nil},
	{"PipelinedWrites1000", "p50-ns/msg", "1,000 pipelined writes, each", nanoseconds, &pipelined},
	{"PipelinedWrites1000", "cpu-ns/msg", "  processor time, client and server", nanoseconds, nil},
	{"PipelinedWrites1000", "allocs/op", "  allocations, 1,000 messages", perMessage, nil},
	{"PostedWrites32", "p50-ns/msg", "32 posted writes, each", nanoseconds, nil},
	{"PostedWrites1000", "p50-ns/msg", "1,000 posted writes, each", nanoseconds, nil},
	{"PostedWritesSingle", "ns/op", "posted writes, a system call each", nanoseconds, nil},
	{"WriteMulti200", "ns/write", "writes in a REGION_WRITE_MULTI of 200", nanoseconds, nil},
}

// protocol runs package vfiouser's benchmarks, so that there is one of each.
func (b *bench) protocol(ctx context.Context) error {
	names := map[string]bool{}
	for _, f := range goFigures {
		names[f.benchmark] = true
	}
	var list []string
	for n := range names {
		list = append(list, n)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^Benchmark("+strings.Join(list, "|")+")$", "-benchmem",
		"-benchtime=300ms", fmt.Sprintf("-count=%d", b.repeat), "github.com/umbra-gpu/umbra/vfiouser")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go test -bench: %w\n%s", err, out)
	}
	metrics, err := goBenchmarks(strings.NewReader(string(out)))
	if err != nil {
		return err
	}
	for _, f := range goFigures {
		values := metrics[f.benchmark][f.metric]
		if len(values) != b.repeat {
			return fmt.Errorf("%d figures in %s from Benchmark%s, want %d", len(values), f.metric, f.benchmark, b.repeat)
		}
		if f.target != nil {
			b.add(f.name, f.unit, values, *f.target)
		} else {
			b.add(f.name, f.unit, values)
		}
	}
	return nil
}

// goBenchmarks reads what go test -bench writes: by benchmark, by metric, one value
// for each time it ran.
func goBenchmarks(r io.Reader) (map[string]map[string][]float64, error) {
	out := map[string]map[string][]float64{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "Benchmark"), "-")
		if out[name] == nil {
			out[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q of go test: %w", lines.Text(), err)
			}
			out[name][fields[i+1]] = append(out[name][fields[i+1]], v)
		}
	}
	return out, nil
}
