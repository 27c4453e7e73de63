package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

type serveCmd struct {
	config.Config `embed:""`

	GPU  []string `name:"gpu" sep:"none" placeholder:"KEY=VALUE,..." help:"Add a virtual GPU: name=a,socket=a.sock,vram=256MiB. The keys are those of gpus in the configuration file."`
	File string   `name:"config" placeholder:"FILE" help:"Read options from a YAML file; flags override it."`
	FD   int      `name:"fd" placeholder:"N" default:"-1" help:"Use this inherited descriptor instead of --socket: a listening UNIX socket, or a client's connection."`

	CheckOnly bool `name:"check" help:"Start nothing: say all that is wrong with the file and the flags, and end. The exit code is 0 if nothing is, else 2. Whether GPUs fit on a card of the NVIDIA driver shows only when it starts."`

	JSON bool `name:"json" help:"Write lines of JSON, as docs/control-api.md describes them: one when serving starts, and a report at each SIGUSR1 and at the end."`
}

// Help is the text below the usage.
func (serveCmd) Help() string {
	return "SIGINT and SIGTERM stop the server, SIGUSR1 writes a report, SIGHUP applies what changed in the configuration file, as umbra reload. The server survives its terminal. " +
		"A second SIGINT or SIGTERM ends the process at once. " +
		"It works with systemd: NOTIFY_SOCKET and WATCHDOG_USEC, and LISTEN_FDS with the names control, gpu-NAME and socket in LISTEN_FDNAMES."
}

// defaultControl is the control socket where the commands look for it.
const defaultControl = "default"

// noFD is FD's default.
const noFD = -1

func (c *serveCmd) Run(ctx context.Context, parsed *kong.Context, out output) (err error) {
	steps := newSteps()
	if c.File == "-" && out.process {
		if err := steps.keepInput(); err != nil {
			return err
		}
	}
	from, err := serve.InheritNamed()
	if err != nil {
		return err
	}
	o, err := c.options(parsed, from.Paths())
	if err != nil {
		return errors.Join(err, serve.CheckHost(o))
	}
	log := newLog(&o.Log, out.stderr)
	plan, err := serve.NewPlan(o, c.FD != noFD || o.Socket != "", log)
	if err != nil {
		return err
	}
	if c.CheckOnly {
		_, err := fmt.Fprintf(out.stdout, "%s: nothing is wrong; %s, %s\n", cmp.Or(c.File, "the options"), cardText(o), plural(uint64(len(o.GPUs)), "virtual GPU", "virtual GPUs"))
		return err
	}
	if out.process && o.Server.Sandbox == serve.SandboxOn && !steps.second {
		return steps.again(plan, c.File, from)
	}
	signals := catchSignals()
	defer signal.Stop(signals)
	parent, err := newNotifier()
	if err != nil {
		return err
	}
	control, err := plan.Control(from)
	if err != nil {
		return err
	}
	if control != nil {
		defer control.Close()
	}
	scraped, err := plan.Metrics()
	if err != nil {
		return err
	}
	if scraped != nil {
		defer scraped.Close()
	}
	if c.FD != noFD {
		given, err := serve.Inherit(c.FD)
		if err != nil {
			return err
		}
		if from == nil {
			from = make(serve.Sockets)
		}
		from[config.WholeSocket] = given
	}
	moreProcessors()
	if out.process && o.Server.Sandbox != serve.SandboxOff {
		if err := steps.filter(plan, log); err != nil {
			return err
		}
	}
	server, err := plan.Start(from)
	if err != nil {
		return err
	}
	defer func() {
		closed := server.Close()
		if errors.Is(closed, vfiouser.ErrStuck) {
			log.Warn("the server ends although a client's thread does not", "error", closed)
			closed = nil
		}
		err = errors.Join(err, closed)
	}()
	server.Version = versionString()
	if steps.second && !steps.free {
		if server.Confined, err = plan.Folders(); err != nil {
			return err
		}
	}
	if c.File != "" && c.File != "-" {
		server.Reread = func() (*config.Config, error) { return c.options(parsed, from.Paths()) }
	}
	stdout := &stdout{w: out.stdout, json: c.JSON, log: log}
	if err := announce(stdout, o, server, plan.Lacks); err != nil {
		return err
	}
	stop := handleSignals(signals, stdout, server)
	quiet := parent.follow(server)
	err = server.Run(ctx, control, scraped)
	quiet()
	parent.send("STOPPING=1")
	stop()
	return errors.Join(err, report(stdout, server))
}

// newLog makes the log that the options describe.
func newLog(o *config.Log, w io.Writer) *slog.Logger {
	options := new(slog.HandlerOptions)
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(o.Level)) // a checked option
	options.Level = level
	if o.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// report writes the report to the standard output.
func report(out *stdout, s *serve.Server) error {
	r, err := s.Report()
	if err != nil {
		return err
	}
	return out.write(r, reportText(&r))
}

// catchSignals starts to catch the signals that do not end the server. SIGPIPE is
// ignored: the reader of the standard output may end before the server does.
func catchSignals() chan os.Signal {
	signal.Ignore(syscall.SIGPIPE)
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGUSR1, syscall.SIGHUP)
	return c
}

// handleSignals writes the report at each SIGUSR1 and reloads at each SIGHUP until stop
// is called, which waits for a report in progress.
func handleSignals(signals <-chan os.Signal, out *stdout, s *serve.Server) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case got := <-signals:
				if got == syscall.SIGHUP && s.Reread == nil {
					out.log.Info("SIGHUP ignored, the server goes on; SIGTERM stops it")
				} else if got == syscall.SIGHUP {
					if _, err := s.Reload(); err != nil { // which logs what it does
						out.log.Error("the configuration is not applied", "error", err)
					}
				} else if err := report(out, s); err != nil {
					out.log.Error("cannot write the report", "error", err)
				}
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// moreProcessors lets two more goroutines run at a time than there are processors.
// The card's engines compute for long times; a trapped read of a guest would wait
// until the runtime preempts one of them. The kernel preempts sooner: the slowest of
// a hundred reads took 0.1 to 1.3 ms instead of 15 to 23 ms.
func moreProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	}
}

// options combines defaults, file, flags, and the paths of inherited sockets.
func (c *serveCmd) options(parsed *kong.Context, inherited map[string]string) (*config.Config, error) {
	o := config.Default()
	o.Inherited = inherited
	if c.FD != noFD { // one guest has the whole card
		o.Scheduler.Policy = config.SchedulerOff
	}
	var errs []error
	if c.File != "" {
		errs = append(errs, o.ReadFile(c.File))
	}
	o.Override(&c.Config, flagsGiven(parsed))
	for _, text := range c.GPU {
		errs = append(errs, o.AddGPU("--gpu", text))
	}
	if o.Control == defaultControl {
		o.Control = api.DefaultPaths()[0]
	}
	if err := errors.Join(append(errs, o.Check())...); err != nil {
		return o, err
	}
	return o, c.oneWay(o)
}

// oneWay checks that there is exactly one way to attach: the inherited descriptor, the socket
// of the whole card, or virtual GPUs. A card that one guest has whole has no scheduler, and no limit
// that only a scheduler enforces.
func (c *serveCmd) oneWay(o *config.Config) error {
	by, wrong := "--fd", ""
	switch {
	case c.FD == noFD && (len(o.GPUs) > 0 || o.Socket == "" && o.Control != ""): // umbra gpu add makes GPUs
		return nil
	case c.FD == noFD && o.Socket == "":
		return &config.Error{Where: o.Where("socket"), Reason: "missing; give the whole card to one guest with --socket umbra.sock, share it with --gpu name=a,socket=a.sock,vram=256MiB, or start without GPUs with --control control.sock and add them with umbra gpu add"}
	case c.FD == noFD:
		by = o.Where("socket")
	case o.Server.Transport == serve.TransportLibrary:
		wrong = "the transport makes its socket itself and cannot use an inherited one; give --socket, or use the native transport"
	case len(o.GPUs) > 0:
		wrong = "gives the whole card to one guest; virtual GPUs have sockets of their own"
	case o.Socket != "":
		wrong = o.Where("socket") + " is given too; give one of them"
	}
	for _, key := range []string{"access.mode", "access.user", "access.group"} {
		if c.FD != noFD && o.Given(key) {
			return &config.Error{Where: o.Where(key), Reason: "has no effect on the inherited socket of --fd; say it where the socket is made"}
		}
	}
	const shares = "shares the card among virtual GPUs"
	alone := ", and " + by + " gives it to one guest; remove one of them"
	switch {
	case wrong != "":
		return &config.Error{Where: by, Value: fmt.Sprint(c.FD), Reason: wrong}
	case o.Scheduler.Policy != config.SchedulerOff:
		return &config.Error{Where: o.Where("scheduler.policy"), Value: o.Scheduler.Policy, Reason: shares + alone}
	case o.Given("limits.request"):
		return &config.Error{Where: o.Where("limits.request"), Value: o.Limits.Request.String(), Reason: "needs a scheduler, which " + shares + alone}
	}
	return nil
}
