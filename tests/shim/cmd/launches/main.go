// Command launches runs a program of package shim on a card with one processor, and stores its launches:
//
//	taskset -c 0 go run ./tests/shim/cmd/launches FILE tests/shim/programs/saxpy.c ARGUMENTS...
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim"
	"github.com/umbra-gpu/umbra/tests/smtest/launches"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "launches:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || runtime.NumCPU() != 1 {
		return fmt.Errorf("%d arguments, %d processors: want FILE PROGRAM.c ARGUMENTS..., and one processor, by taskset", len(args), runtime.NumCPU())
	}
	ctx := context.Background()
	dir, err := fetch.DefaultDir()
	if err != nil {
		return err
	}
	host, err := shim.NewHost(ctx, &fetch.Cache{Dir: dir, Progress: os.Stderr}, (*fetch.Cache).Mesa, "25")
	if err != nil {
		return err
	}
	defer host.Close()
	binary, err := host.Compile(ctx, args[1])
	if err != nil {
		return err
	}
	var recorders []*launches.Recorder
	p := shim.Program{Argv: append([]string{binary}, args[2:]...), Device: shim.OurCard, Output: os.Stdout, Errors: os.Stderr,
		Config: shim.Config{Executor: func() sm.Executor {
			r := new(launches.Recorder)
			recorders = append(recorders, r)
			return r
		}}}
	if _, err := host.Run(ctx, p); err != nil {
		return err
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	var list []*launches.Launch
	for _, r := range recorders {
		list = append(list, r.Launches...)
	}
	return launches.Write(f, list)
}
