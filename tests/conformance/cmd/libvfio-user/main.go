// Command libvfio-user gets the C library libvfio-user, and runs what needs it:
//
//	libvfio-user build           build it into the cache folder, and say how to use it
//	libvfio-user go ARGUMENT...  run the go command with the tag, the compiler's and the linker's flags
//
// A library of the machine's own is used in its place when CGO_CFLAGS or
// CGO_LDFLAGS is set. Only "build" fetches anything, and it exits with 77 where
// the library is not to be had.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "libvfio-user:", err)
		if errors.Is(err, fetch.ErrUnavailable) {
			os.Exit(77)
		}
		os.Exit(1)
	}
}

const tag = "libvfiouser"

func run(ctx context.Context, args []string) error {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return err
	}
	c := &fetch.Cache{Dir: dir, Progress: os.Stderr}
	switch {
	case len(args) == 1 && args[0] == "build":
		return build(ctx, c)
	case len(args) > 1 && args[0] == "go":
		env, err := environment(c)
		if err != nil {
			return err
		}
		return goTool(ctx, env, withTag(args[1:])...)
	}
	return fmt.Errorf("%q: say build, or go with a go command's arguments", args)
}

func build(ctx context.Context, c *fetch.Cache) error {
	l, err := c.LibVFIOUser(ctx)
	if err != nil {
		return err
	}
	cflags, ldflags := l.CGOFlags()
	fmt.Printf("libvfio-user of %s %s in %s\n", l.Packages[0].Name, l.Version, l.Dir)
	for _, p := range l.Packages {
		fmt.Printf("  from %s %s\n", p.Name, p.Version)
	}
	fmt.Printf("\nexport CGO_CFLAGS='%s'\nexport CGO_LDFLAGS='%s'\ngo build -tags %s ./cmd/umbra\n", cflags, ldflags, tag)
	return nil
}

var errNotBuilt = errors.New("libvfio-user has not been built (make libvfio-user), and neither CGO_CFLAGS nor CGO_LDFLAGS names one of this machine's")

// environment is what the go command needs to find the library.
func environment(c *fetch.Cache) ([]string, error) {
	if env, ok := fetch.OwnLibVFIOUser(); ok {
		return env, nil
	}
	l, ok := c.BuiltLibVFIOUser()
	if !ok {
		return nil, errNotBuilt
	}
	return l.GoEnv(), nil
}

// withTag inserts the tag after the go command's verb.
func withTag(args []string) []string { return slices.Insert(slices.Clone(args), 1, "-tags="+tag) }

func goTool(ctx context.Context, env []string, args ...string) error {
	fmt.Fprintln(os.Stderr, "go", args)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd.Run()
}
