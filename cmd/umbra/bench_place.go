package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/tests/lab/fetch"
)

// checkGiven looks at what the environment names for virtual machines with these kernels before
// anything is measured: it is as much what the user gave as the command line is. What nobody
// named is fetched, and no business of this.
func checkGiven(ctx context.Context, kernels []string) error {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return err
	}
	cache := &fetch.Cache{Dir: dir, Offline: true}
	if os.Getenv(fetch.EnvQEMU) != "" {
		if _, err := cache.QEMU(ctx); err != nil {
			return badGiven(ctx, err, "name a qemu-system-x86_64 of QEMU 10.1 or newer")
		}
	}
	if os.Getenv(fetch.EnvKernel) == "" {
		return nil
	}
	if len(kernels) == 0 {
		kernels = []string{fetch.DefaultKernel}
	}
	for _, version := range kernels {
		if _, err := cache.Kernel(ctx, version); err != nil && !errors.Is(err, fetch.ErrNotFetched) {
			return badGiven(ctx, err, "name a bzImage, and its lib/modules/RELEASE by "+fetch.EnvKernelModules)
		}
	}
	return nil
}

// badGiven says what is wrong with a file that a variable names, and what would be right.
func badGiven(ctx context.Context, err error, remedy string) error {
	if ctx.Err() != nil { // what was looked at was stopped with it
		return ctx.Err()
	}
	return &config.Error{Where: "virtual machines", Reason: fmt.Sprintf("%v; %s, or leave the variable empty to have one fetched", err, remedy)}
}
