package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Plan is a server that was checked and has not started.
type Plan struct {
	Make  Make     // makes the transport
	Lacks []string // what the transport lacks that the native one has

	config  *config.Config
	access  map[string]*Access // of each socket by its path
	whole   bool               // one guest has the whole card
	card    soft.Config
	nvidia  func() (card.GPU, error) // opens the card instead, if its kind is so
	windows passthrough.Config       // of a whole card
	gpus    []GPUConfig
	options vfiouser.Options
	limits  aggregator.Options
	driver  driver.Options
}

// checkSockets makes the paths of sockets absolute, and finds who may connect to each, by its path.
func checkSockets(c *config.Config) (map[string]*Access, error) {
	out := make(map[string]*Access)
	var errs []error
	for _, s := range c.Sockets(c.GPUs) {
		inherited := c.Inherited[s.Name] != ""
		switch {
		case inherited && c.Server.Transport == TransportLibrary && s.Name != config.ControlSocket:
			errs = append(errs, &config.Error{Where: c.Where("server.transport"), Value: TransportLibrary,
				Reason: "makes its sockets itself and cannot use the inherited " + s.Name + "; use the native transport"})
		case !inherited:
			access, err := accessOf(&s)
			errs = append(errs, resolve(s.Path, s.Where), err)
			out[*s.Path] = access
		}
	}
	return out, errors.Join(errs...)
}

// CheckHost finds what this machine does not have that options need which are wrong otherwise, too.
func CheckHost(c *config.Config) error {
	_, err := checkSockets(c)
	return err
}

// NewPlan finds everything that is wrong with the options before anything starts, and makes the paths
// of sockets absolute. With whole one guest has the whole card.
func NewPlan(c *config.Config, whole bool, log *slog.Logger) (*Plan, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Plan{config: c, whole: whole, driver: driver.Options{Timeout: c.Limits.CardTimeout}}
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	var err error
	p.access, err = checkSockets(c)
	check(err)
	if whole && c.Card.Kind == config.Nvidia {
		check(&config.Error{Where: c.Where("card.kind"), Value: c.Card.Kind,
			Reason: "such a card is shared among virtual GPUs, and one guest shall have the whole card; share it with --gpu name=a,socket=a.sock,vram=4GiB"})
	} else if whole && !chips[c.Card.Chip].card {
		check(&config.Error{Where: c.Where("card.chip"), Value: c.Card.Chip,
			Reason: "only a virtual GPU has this chip, and one guest shall have the whole card; share the card with --gpu name=a,socket=a.sock,vram=4GiB, or leave the chip out"})
	}
	if c.Card.Kind == config.Nvidia {
		p.nvidia = func() (card.GPU, error) {
			return openNvidia(&c.Card, func(format string, args ...any) { log.Warn(fmt.Sprintf(format, args...)) })
		}
	} else {
		p.card, err = cardOf(c)
		check(err)
		p.card.Compile, err = compilerOf(c, log)
		check(err)
	}
	check(p.planTransport(log))
	p.limits, err = LimitsOf(c)
	check(err)
	p.windows = passthrough.Config{Map: c.Card.BARMap, Limits: p.limits.Map}
	for i := range c.GPUs {
		g, err := GPUOf(&c.GPUs[i])
		check(err)
		g.Access = p.access[g.Socket]
		p.gpus = append(p.gpus, g)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// Control listens at the control socket, which may be inherited; nil if the options name none.
func (p *Plan) Control(from Sockets) (net.Listener, error) {
	path := p.config.Control
	if i := from[config.ControlSocket]; i != nil {
		return i.listener()
	}
	if path == "" {
		return nil, nil
	}
	l, err := vfiouser.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, errors.Unwrap(err))
	}
	if err := p.access[path].apply(path); err != nil {
		return nil, errors.Join(fmt.Errorf("control %w", err), l.Close())
	}
	return l, nil
}

// Metrics listens at the address where Prometheus asks; nil if the options name none.
func (p *Plan) Metrics() (net.Listener, error) {
	at := string(p.config.Metrics)
	if at == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", at)
	if err == nil {
		return l, nil
	}
	reason := err.Error()
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		reason = "another program listens there; choose another port"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		reason = "this machine has no such address; choose one that ip address lists"
	case errors.Is(err, fs.ErrPermission):
		reason = "this user may not listen there; choose a port from 1024 on"
	}
	return nil, &config.Error{Where: p.config.Where("metrics"), Value: at, Reason: reason}
}

// Start makes the card and serves it, or its virtual GPUs, at inherited sockets where there are such.
func (p *Plan) Start(from Sockets) (_ *Server, err error) {
	s := &Server{Config: p.config, began: time.Now(), sharing: p.config.Sharing(), log: p.options.Log, inherited: from, stated: state(p.config)}
	s.defaults.Store(p.config)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if why := interpreted(p.config, nil); why != "" && p.nvidia == nil && p.card.Compile == nil {
		s.log.Info("programs of guests run interpreted, which is slower: " + why)
	}
	if p.nvidia != nil {
		s.Shared, err = p.shareNvidia()
	} else if s.Card, err = soft.New(p.card); err == nil && p.whole {
		return s, s.serveWhole(p, from[config.WholeSocket])
	} else if err == nil {
		s.Shared, err = NewShared(s.Card, p.Make, p.options, p.limits, p.driver)
	}
	if err != nil {
		return nil, err
	}
	for _, cfg := range p.gpus {
		cfg.From = from[config.GPUSocket+cfg.Share.Name]
		if _, err := s.Shared.Add(cfg); err != nil {
			return nil, err
		}
	}
	for name := range from {
		if gpu, ok := strings.CutPrefix(name, config.GPUSocket); name != config.ControlSocket && (!ok || s.Shared.Find(gpu) == nil) {
			s.log.Warn("an inherited socket has no GPU; its name in LISTEN_FDNAMES must be control, socket, or gpu-NAME of a GPU, which may be added later", "name", name)
		}
	}
	return s, nil
}
