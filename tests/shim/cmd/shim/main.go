// Command shim runs programs on the software card without a virtual machine, and replays what
// they submitted. Without arguments it lists its commands.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "shim:", err)
		stop()
		os.Exit(1)
	}
}

const usage = `shim run [flags] PROGRAM [argument...]   run a program on the software card; a name that ends in .c is compiled first
shim replay FILE...                      replay recordings
shim show [-methods] FILE                explain a recording: submissions, launches, programs, and where one failed
shim piglit [flags]                      run piglit's OpenCL and compute tests, and say which of them count
shim bench [flags]                       compare the card's speed with Mesa's renderer and PoCL

shim run -h, shim piglit -h and shim bench -h list the flags.
`

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{"run": runProgram, "replay": replay, "show": show, "piglit": piglit, "bench": bench}
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:])
	}
	fmt.Print(usage)
	return nil
}

// newHost makes a host with packages of the usual cache.
func newHost(ctx context.Context, packages shim.Packages, mesa string) (*shim.Host, error) {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return nil, err
	}
	return shim.NewHost(ctx, &fetch.Cache{Dir: dir, Progress: os.Stderr}, packages, mesa)
}

func runProgram(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("shim run", flag.ContinueOnError)
	version := flags.String("mesa", "25", "version of Mesa: 25 or 26; or the prefix of one that you built, with a / in its name")
	record := flags.String("record", "", "file to record to; without it, a program that fails runs once more, and leaves a recording in the folder of temporary files")
	device := flags.String("device", shim.OurCard, "device: nouveau, which is our card, or llvmpipe")
	var cfg shim.Config
	flags.BoolVar(&cfg.AllowNotExecuted, "allow-not-executed", false, "go on when the card does not carry out a method")
	flags.DurationVar(&cfg.Limit, "limit", time.Minute, "for one submission")
	compile := flags.String("compile", compileOff, compileHelp)
	profiled := flags.Bool("profile", false, "print which blocks of programs executed most warp instructions; programs are interpreted")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *device != shim.OurCard && *device != shim.Renderer {
		return fmt.Errorf("-device %s: want %s, which is our card, or %s", *device, shim.OurCard, shim.Renderer)
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("run: no program was named")
	}
	if *profiled && (*compile != compileOff || *device != shim.OurCard) {
		return fmt.Errorf("-profile with -compile %s -device %s: want -compile %s -device %s: our card's interpreter counts", *compile, *device, compileOff, shim.OurCard)
	}
	var profile shim.Profile
	if *profiled {
		profile.Use(&cfg)
	}
	host, err := newHost(ctx, (*fetch.Cache).Mesa, *version)
	if err != nil {
		return err
	}
	defer host.Close()
	done, err := useCompiler(ctx, &cfg, *compile)
	if err != nil {
		return err
	}
	defer done()
	argv := flags.Args()
	if strings.HasSuffix(argv[0], ".c") {
		if argv[0], err = host.Compile(ctx, argv[0]); err != nil {
			return err
		}
	}
	p := shim.Program{Argv: argv, Device: *device, Config: cfg, Record: *record != "", Output: os.Stdout, Errors: os.Stderr}
	r, err := host.Run(ctx, p)
	var end *exec.ExitError
	if errors.As(err, &end) && end.Sys().(syscall.WaitStatus).Signal() == syscall.SIGPIPE { // | head read enough
		return nil
	}
	if err != nil && !p.Record && *device == shim.OurCard && ctx.Err() == nil {
		return errors.Join(err, recordFailure(ctx, host, p))
	}
	if *profiled && err == nil {
		err = profile.WriteTable(os.Stdout)
	}
	if r == nil {
		return err
	}
	f, failed := os.Create(*record)
	if failed == nil {
		failed = store(f, r)
	}
	return errors.Join(err, failed)
}

// recordFailure runs a program that failed once more, to record it: recording compares memory after each submission,
// and holds all of it, which is too much for programs that do not fail.
func recordFailure(ctx context.Context, host *shim.Host, p shim.Program) error {
	fmt.Fprintln(os.Stderr, "shim: it failed; running it once more to record it")
	p.Record, p.Output, p.Errors, p.Config.Compiled = true, io.Discard, nil, nil
	r, err := host.Run(ctx, p)
	if err == nil {
		fmt.Fprintln(os.Stderr, "shim: it did not fail again; -record FILE records the first run")
	}
	if err == nil || r == nil {
		return nil
	}
	f, err := os.CreateTemp("", "umbra-"+filepath.Base(p.Argv[0])+"-*.rec")
	if err != nil {
		return err
	}
	if err := store(f, r); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "shim: what it did until then is in %s; shim show explains it\n", f.Name())
	return nil
}

// store writes a recording, and closes its file.
func store(f *os.File, r *shim.Recording) error {
	err := r.Write(f)
	if info, failed := f.Stat(); err == nil && failed == nil {
		fmt.Fprintf(os.Stderr, "%s: %d bytes, %d steps\n", filepath.Base(f.Name()), info.Size(), len(r.Steps))
	}
	return errors.Join(err, f.Close())
}

func replay(_ context.Context, names []string) error {
	if len(names) == 0 || strings.HasPrefix(names[0], "-") {
		fmt.Print(usage)
		return nil
	}
	for _, name := range names {
		if err := replayOne(name); err != nil {
			return err
		}
	}
	return nil
}

func readRecording(name string) (*shim.Recording, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := shim.ReadRecording(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return r, err
}

func show(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("shim show", flag.ContinueOnError)
	methods := flags.Bool("methods", false, "name the methods of all submissions; without it, of one that fails")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("show: %d files; give one", flags.NArg())
	}
	r, err := readRecording(flags.Arg(0))
	if err != nil {
		return err
	}
	w := bufio.NewWriter(os.Stdout)
	return errors.Join(shim.Show(w, r, *methods), w.Flush())
}

func replayOne(name string) error {
	r, err := readRecording(name)
	if err != nil {
		return err
	}
	m, err := shim.NewMachine(shim.Config{})
	if err != nil {
		return err
	}
	defer m.Close()
	start := time.Now()
	if err := shim.Replay(m, r); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("%s: %s, as recorded in %v\n", filepath.Base(name), r.Program, time.Since(start).Round(time.Millisecond))
	return nil
}
