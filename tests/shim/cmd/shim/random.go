package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim"
	"github.com/umbra-gpu/umbra/tests/shim/random"
)

// randomKernels compares programs of random kernels, each of which is made from a seed. It writes
// those that differ to a folder.
func randomKernels(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("shim random", flag.ContinueOnError)
	version := flags.String("mesa", "25", "version of Mesa: 25 or 26")
	seed := flags.Uint64("seed", 1, "of the first program")
	programs := flags.Int("programs", 10, "how many")
	kernels := flags.Int("kernels", 10, "of each program")
	record := flags.String("record", "", "file to record the last program to")
	failures := flags.String("failures", "", "folder for the sources of programs that differ")
	if err := flags.Parse(args); err != nil {
		return err
	}
	host, err := newHost(ctx, (*fetch.Cache).Mesa, *version)
	if err != nil {
		return err
	}
	defer host.Close()
	k, err := host.NewKernels(ctx)
	if err != nil {
		return err
	}
	bad, skipped := 0, 0
	for i := range uint64(*programs) {
		r, err := k.Compare(ctx, *seed+i, *kernels, shim.Config{})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, shim.ErrMesa) {
			skipped++
			continue
		}
		if err != nil {
			bad++
			fmt.Printf("seed %d: %v\n", *seed+i, err)
			if *failures != "" {
				name := filepath.Join(*failures, fmt.Sprintf("%d.cl", *seed+i))
				if err := os.WriteFile(name, []byte(random.Source(*seed+i, *kernels)), 0o644); err != nil {
					return err
				}
			}
		} else if *record != "" && i == uint64(*programs)-1 {
			if err := store(*record, r); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d programs differ", bad, *programs)
	}
	fmt.Printf("%d programs of %d kernels give what Mesa's renderer gives; Mesa failed on %d\n", *programs-skipped, *kernels, skipped)
	return nil
}
