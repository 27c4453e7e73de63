package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/vfiouser"
)

type serveCmd struct {
	config.Config `embed:""`

	GPU  []string `name:"gpu" sep:"none" placeholder:"KEY=VALUE,..." help:"Add a virtual GPU, as in name=a,socket=a.sock,vram=256MiB. The keys are those of the file."`
	File string   `name:"config" placeholder:"FILE" help:"Read options from a YAML file; flags override it."`
	FD   int      `name:"fd" placeholder:"N" default:"-1" help:"Use this inherited descriptor in place of --socket: a listening socket, or a client's connection."`
	JSON bool     `name:"json" help:"Write JSON lines for machines: one when serving, one report at the end."`
}

// noFD is FD's value when nobody gave one.
const noFD = -1

func (c *serveCmd) Run(ctx context.Context, parsed *kong.Context, out output) (err error) {
	opts, err := c.options(parsed)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // who reads what is said may go before the sockets are taken away
	s := &served{layer: opts, alone: c.FD != noFD || opts.Config.Socket != "", began: time.Now(), out: out, json: c.JSON, log: slog.New(slog.NewTextHandler(out.stderr, nil))}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.check(); err != nil {
		return err
	}
	// The sockets first: a path that is taken must not cost the making of a card.
	if err := s.listen(c); err != nil {
		return err
	}
	moreProcessors()
	if err := s.start(); err != nil {
		return err
	}
	if err := s.announce(); err != nil {
		return err
	}
	stop := s.reportOnSignal()
	err = s.run(ctx)
	stop()
	if errors.Is(err, context.Canceled) {
		err = nil // a signal is how it is meant to end
	}
	return errors.Join(err, s.report())
}

// moreProcessors lets more goroutines run at a time than there are processors.
// A card's engines compute for long; a guest's trapped read that comes in while
// they do finds no Go processor free and waits until the runtime takes one away
// from them. With two to spare, the kernel shares the real ones out instead: the
// slowest of a hundred reads took 0.1 to 1.3 ms in place of 15 to 23.
func moreProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	}
}

// options joins defaults, file and flags.
func (c *serveCmd) options(parsed *kong.Context) (config.Layer, error) {
	layers := []config.Layer{config.Defaults()}
	if c.FD != noFD { // one guest has the card: nobody to share it with
		layers[0].Config.Scheduler.Policy = config.SchedulerOff
	}
	if c.File != "" {
		file, err := config.File(c.File)
		if err != nil {
			return config.Layer{}, err
		}
		layers = append(layers, file)
	}
	var set []string
	for _, f := range parsed.Flags() {
		if f.Set {
			set = append(set, f.Name)
		}
	}
	flags := c.Config
	for _, text := range c.GPU {
		g, err := config.ParseGPU("--gpu", text)
		if err != nil {
			return config.Layer{}, err
		}
		flags.GPUs = append(flags.GPUs, g)
	}
	l, err := config.Join(append(layers, config.Flags(flags, set))...)
	if err != nil {
		return l, err
	}
	switch {
	case c.FD != noFD && l.Config.Server.Transport == serve.TransportLibrary:
		return l, &config.Error{Where: "--fd", Value: fmt.Sprint(c.FD), Reason: serve.ErrNoInherited.Error() + "; give --socket, or use the native transport"}
	case c.FD != noFD && len(l.Config.GPUs) > 0:
		return l, &config.Error{Where: "--fd", Value: fmt.Sprint(c.FD), Reason: "gives the whole card to one guest, and there are virtual GPUs, which have sockets of their own"}
	case len(l.Config.GPUs) > 0:
		return l, nil
	case c.FD != noFD && l.Config.Scheduler.Policy != config.SchedulerOff:
		return l, alone(&l, "--fd")
	case l.Config.Socket != "" && l.Config.Scheduler.Policy != config.SchedulerOff:
		return l, alone(&l, l.Where("socket"))
	case c.FD == noFD && l.Config.Socket == "" && l.Config.Control != "":
		return l, nil // umbra gpu add makes them
	case c.FD == noFD && l.Config.Socket == "":
		return l, &config.Error{Where: l.Where("socket"), Reason: "missing; say where QEMU shall attach to the whole card, for example --socket umbra.sock, or share it: --gpu name=a,socket=a.sock,vram=256MiB; or begin without GPUs and let umbra gpu add make them: --control control.sock"}
	case c.FD != noFD && l.Config.Socket != "":
		return l, &config.Error{Where: "--fd", Value: fmt.Sprint(c.FD), Reason: l.Where("socket") + " is given too; one of them is enough"}
	}
	return l, nil
}

// alone refuses to share a card that by gives to one guest.
func alone(l *config.Layer, by string) error {
	return &config.Error{Where: l.Where("scheduler.policy"), Value: l.Config.Scheduler.Policy, Reason: "shares the card among virtual GPUs, and " + by + " gives it to one guest; remove one of them"}
}

// served is everything that serves: a card, and either the one seat of a
// pass-through or virtual GPUs.
type served struct {
	layer config.Layer
	alone bool // one guest has the card
	began time.Time
	out   output
	json  bool
	log   *slog.Logger

	cardConfig soft.Config
	by         serve.Make // the transport
	options    vfiouser.Options
	lacks      []string // what a client does not get from it
	gpuConfigs []serve.GPUConfig
	limits     aggregator.Options

	control   net.Listener        // nil if there is none
	at        *endpoint           // of a pass-through
	listeners []*net.UnixListener // of virtual GPUs, until they are served

	card   *soft.Card
	seat   *serve.Endpoint    // in pass-through
	teller *serve.EventLogger // of what its guest does
	shared *serve.Shared      // else

	mu   sync.Mutex   // one change of gpus at a time
	gpus []config.GPU // that are there
}

// check makes everything that can be found wrong before anything starts.
func (s *served) check() (err error) {
	if s.cardConfig, err = parts.Card(&s.layer); err != nil {
		return err
	}
	if s.by, s.options, s.lacks, err = parts.Server(&s.layer, s.alone, s.log); err != nil {
		return err
	}
	if s.limits, err = parts.Limits(&s.layer); err != nil {
		return err
	}
	for i := range s.layer.Config.GPUs {
		g, err := parts.GPU(&s.layer.Config.GPUs[i])
		if err != nil {
			return err
		}
		s.gpuConfigs = append(s.gpuConfigs, g)
	}
	return nil
}

// listen opens every socket.
func (s *served) listen(c *serveCmd) (err error) {
	if path := s.layer.Config.Control; path != "" {
		if path, err = socketPath(path, s.layer.Where("control")); err != nil {
			return err
		}
		s.layer.Config.Control = path
		if s.control, err = api.Listen(path); err != nil {
			return err
		}
	}
	gpus := s.layer.Config.GPUs
	if s.alone {
		s.at, err = c.listen(&s.layer)
		return err
	}
	for i := range gpus {
		if gpus[i].Socket, err = socketPath(gpus[i].Socket, gpus[i].Where("socket")); err != nil {
			return err
		}
		l, err := vfiouser.Listen(gpus[i].Socket)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
		s.gpuConfigs[i].Socket = gpus[i].Socket
	}
	return nil
}

// start makes the card, and what is in front of it. Virtual GPUs are served from
// now on.
func (s *served) start() (err error) {
	if s.card, err = soft.New(s.cardConfig); err != nil {
		return err
	}
	if s.at != nil {
		if s.seat, err = serve.NewEndpoint(theCard, serve.NewPassThrough(s.card), s.card, s.by, s.options); err != nil {
			return err
		}
		s.teller = serve.NewEventLogger(s.log, s.seats)
		s.teller.SetInterval(s.layer.Config.Limits.RuleInterval)
		return nil
	}
	if s.shared, err = serve.NewSharedWith(s.card, s.by, s.options, s.limits); err != nil {
		return err
	}
	s.shared.SetRuleInterval(s.layer.Config.Limits.RuleInterval)
	for i, cfg := range s.gpuConfigs {
		l := s.listeners[0]
		s.listeners = s.listeners[1:]
		if _, err := s.shared.Add(cfg, l); err != nil {
			return err
		}
		s.gpus = append(s.gpus, s.layer.Config.GPUs[i])
	}
	return nil
}

// theCard is what the seat of a pass-through is called.
const theCard = "card"

// run serves until ctx ends, or the one client on an inherited connection has
// gone.
func (s *served) run(ctx context.Context) error {
	serving, cancel := context.WithCancelCause(ctx)
	var controlled sync.WaitGroup
	if l := s.control; l != nil {
		s.control = nil
		controlled.Go(func() {
			if err := api.Serve(serving, l, s, s.log); err != nil {
				cancel(err)
			}
		})
	}
	var err error
	if s.at != nil {
		err = errors.Join(s.at.serve(serving, s.seat.Server), s.seat.Server.Close())
	} else {
		<-serving.Done()
	}
	if ctx.Err() == nil && serving.Err() != nil {
		err = context.Cause(serving) // of the control socket
	}
	cancel(nil)
	controlled.Wait()
	return err
}

// close ends whatever there is.
func (s *served) close() error {
	var errs []error
	if s.control != nil {
		s.control.Close()
	}
	if s.at != nil {
		s.at.close()
	}
	for _, l := range s.listeners {
		l.Close()
	}
	if s.teller != nil {
		s.teller.Close()
	}
	if s.shared != nil {
		errs = append(errs, s.shared.Close())
	}
	if s.card != nil {
		errs = append(errs, s.card.Close())
	}
	return errors.Join(errs...)
}

// announcement is the JSON line that says what is served.
type announcement struct {
	Event   string         `json:"event"` // "serving"
	Socket  string         `json:"socket,omitempty"`
	Control string         `json:"control,omitempty"`
	Options map[string]any `json:"options"`
	QEMU    []string       `json:"qemu,omitempty"` // arguments that attach it
	GPUs    []announcedGPU `json:"gpus,omitempty"`
	Lacks   []string       `json:"lacks,omitempty"` // of what the native transport has
	PID     int            `json:"pid"`
}

type announcedGPU struct {
	Name   string         `json:"name"`
	Socket string         `json:"socket"`
	Values map[string]any `json:"options"`
	QEMU   []string       `json:"qemu"`
}

func (s *served) announce() error {
	c := &s.layer.Config
	a := announcement{Event: "serving", Control: c.Control, Options: c.Values(), Lacks: s.lacks, PID: os.Getpid()}
	if s.at != nil && s.at.path != "" {
		a.Socket, a.QEMU = s.at.path, qemuArgs(s.at.path)
	}
	for i := range s.gpus {
		g := &s.gpus[i]
		a.GPUs = append(a.GPUs, announcedGPU{g.Name, g.Socket, g.Values(), qemuArgs(g.Socket)})
	}
	if s.json {
		return json.NewEncoder(s.out.stdout).Encode(a)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GF100 in software (%04x:%v), %v of VRAM, %s\n", gf100.VendorID, c.Card.Device, c.Card.VRAM, interruptsOf(&c.Card.Face))
	if !c.Card.Engines {
		b.WriteString("its engines do nothing, as asked: what moves data fails\n")
	}
	const attach = "QEMU (10.1 or newer) attaches with these arguments, beside those for its disk or kernel:"
	switch {
	case len(a.GPUs) > 0:
		t := newTable(&b, "Virtual GPUs", "name\tVRAM\tchannels\tinterrupts\tsocket")
		for i := range s.gpus {
			g := &s.gpus[i]
			t.row("%s\t%v\t%d\t%s\t%s", g.Name, g.VRAM, g.Channels, interruptsOf(&g.Face), g.Socket)
		}
		t.flush()
		fmt.Fprintf(&b, "\n%s\n\n%s", attach, shellLines(a.GPUs[0].QEMU))
		if len(a.GPUs) > 1 {
			b.WriteString("\nThat is the first; for another, put its socket there.\n")
		}
	case s.at == nil:
		fmt.Fprintf(&b, "no virtual GPUs yet; this makes one:\n\n  umbra gpu add --control %s name=a socket=a.sock vram=256MiB\n", c.Control)
	case a.Socket == "":
		b.WriteString("serving the client on the inherited descriptor\n")
	default:
		fmt.Fprintf(&b, "serving at %s\n\n%s\n\n%s", a.Socket, attach, shellLines(a.QEMU))
	}
	if c.Control != "" {
		fmt.Fprintf(&b, "\numbra status, gpu, sched and regs talk to it with --control %s\n", c.Control)
	}
	if len(s.lacks) > 0 {
		fmt.Fprintf(&b, "\nServed by %s, which lacks what the native transport has:\n", c.Server.Transport)
		for _, l := range s.lacks {
			fmt.Fprintf(&b, "  %s\n", l)
		}
	}
	b.WriteString("\nInterrupt it (ctrl-C) to stop.\n")
	_, err := fmt.Fprint(s.out.stdout, b.String())
	return err
}

func interruptsOf(f *config.Face) string {
	if f.MSI {
		return "MSI"
	}
	return "INTx"
}
