package serve

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/vfiouser"
)

var _ api.Backend = (*Server)(nil)

func (s *Server) setup() string {
	if s.Shared == nil {
		return api.SetupPassThrough
	}
	return api.SetupVirtual
}

// Status implements api.Backend.
func (s *Server) Status() (api.Status, error) {
	card := ReportCard(s.Card)
	out := api.Status{
		Version: s.Version, PID: os.Getpid(), Uptime: time.Since(s.began), Setup: s.setup(), GPUs: []api.GPU{},
		Card: api.Card{Kind: s.Config.Card.Kind, VRAM: uint64(s.Config.Card.VRAM), Interrupts: card.Interrupts, Faults: card.Faults, Bytes: card.Bytes()},
	}
	if s.Card != nil {
		out.Card.Programs = programCounts(s.Card.Compiled())
	}
	ledger := s.ledger()
	used, channels := config.Size(0), 0
	for _, e := range s.Endpoints() {
		out.GPUs = append(out.GPUs, s.status(e, ledger))
		used += config.Size(e.Config.Share.VRAM + e.Config.Share.Tables)
		channels += e.Config.Share.Guaranteed
	}
	if s.Shared == nil {
		return out, nil
	}
	if s.sharing != config.Unshared {
		out.Card.Policy, out.Card.Ledger = s.policy(), treeOf(ledger)
	}
	left, room := s.Config.Room(used)
	out.Card.VRAMFree, out.Card.VRAMRoom, out.Card.ChannelsFree = uint64(left), uint64(room), gf100.Channels-channels
	return out, nil
}

// status is the status of a GPU, with what its endpoint does not know.
func (s *Server) status(e *Endpoint, ledger []sched.Entry) api.GPU {
	g := e.Status()
	if e.Virtual != nil {
		g.CardTime = cardTime(ledger, e.Name)
		if s.sharing != config.Unshared {
			g.Share = e.share()
		}
		return g
	}
	// The guest is the card's only one, so its counts are the card's.
	card := ReportCard(s.Card)
	g.VRAM, g.Bytes = uint64(s.Config.Card.VRAM), card.Bytes()
	f := &card.Faults
	g.Counts["program_faults"] = s.Card.Stats().ProgramFaults.Load()
	g.Counts["mmu_faults"], g.Counts["pbdma_errors"], g.Counts["engine_errors"], g.Counts["window_faults"] = f.MMU, f.PBDMA, f.Engine, f.BAR
	return g
}

// Report implements api.Backend.
func (s *Server) Report() (api.Report, error) {
	ledger := s.ledger()
	r := api.Report{Event: "report", Uptime: time.Since(s.began), Setup: s.setup(), Card: ReportCard(s.Card), GPUs: []api.GPUReport{}, Ledger: treeOf(ledger)}
	for _, e := range s.Endpoints() {
		g := e.Report()
		g.GPU = s.status(e, ledger)
		r.GPUs = append(r.GPUs, g)
	}
	return r, nil
}

// Registers implements api.Backend.
func (s *Server) Registers(gpu string) (api.RegisterTable, error) {
	if gpu == "" {
		return Registers(s.Endpoints()...)
	}
	e, err := s.find(gpu)
	if err != nil {
		return api.RegisterTable{}, err
	}
	return Registers(e)
}

// find returns the endpoint of that name.
func (s *Server) find(name string) (*Endpoint, error) {
	var names []string
	for _, e := range s.Endpoints() {
		if names = append(names, e.Name); e.Name == name {
			return e, nil
		}
	}
	if len(names) == 0 {
		return nil, api.NotFound("there is no GPU %s: there are none", name)
	}
	return nil, api.NotFound("there is no GPU %s; %s", name, config.Known(name, names))
}

// refused makes an API error of err: Invalid if the request itself is wrong, else
// Conflict.
func refused(err error) error {
	if wrong := new(config.Error); errors.As(err, &wrong) {
		return api.Invalid("%v", err)
	}
	return api.Conflict("%v", err)
}

// needShared refuses changes of virtual GPUs in pass-through.
func (s *Server) needShared() error {
	if s.Shared == nil {
		return api.Conflict("this server gives the whole card to one guest; to share a card, start a server with --gpu or with gpus in its configuration file")
	}
	return nil
}

// Add implements api.Backend. The new GPU must fit beside the others as those of a
// configuration file must.
func (s *Server) Add(a api.AddRequest) (out api.GPU, err error) {
	g, err := s.defaults.Load().NewGPU(a.GPU)
	if err != nil {
		return out, refused(err)
	}
	return s.add(g)
}

// add adds a completed GPU.
func (s *Server) add(g config.GPU) (out api.GPU, err error) {
	if err := s.needShared(); err != nil {
		return out, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	socket := g.SocketPath()
	from, access := s.inherited[socket.Name], (*Access)(nil)
	if from == nil {
		if err := resolve(socket.Path, socket.Where); err != nil {
			return out, refused(err)
		}
		if access, err = accessOf(&socket); err != nil {
			return out, refused(err)
		}
	}
	var all []config.GPU
	for _, e := range s.Endpoints() {
		switch there := e.options.Load(); {
		case there.Name == g.Name:
			return out, api.Conflict("a GPU named %s is running already; remove it first or choose another name", g.Name)
		case there.Socket == g.Socket:
			return out, api.Conflict("%s: %s: GPU %s listens there already; choose another path", g.Where("socket"), g.Socket, there.Name)
		default:
			all = append(all, *there)
		}
	}
	all = append(all, g)
	if err := cmp.Or(s.Config.Fit(all), s.Config.FitAddresses(all, config.Size(addressSpace()))); err != nil {
		return out, api.Conflict("%v", err)
	}
	cfg, err := GPUOf(&all[len(all)-1])
	if err != nil {
		return out, refused(err)
	}
	cfg.Access, cfg.From = access, from
	e, err := s.Shared.Add(cfg)
	if err != nil {
		return out, refused(err)
	}
	s.log.Info("GPU added", "gpu", g.Name, "vram", g.VRAM, "channels", cfg.Options.Channels, "socket", cfg.Socket)
	return s.status(e, s.ledger()), nil
}

// Set implements api.Backend.
func (s *Server) Set(name string, r api.SetRequest) (out api.GPU, err error) {
	if err := s.needShared(); err != nil {
		return out, err
	}
	e, err := s.find(name)
	if err != nil {
		return out, err
	}
	e.changing.Lock() // not s.mu: the GPU's worker may be at work for long
	defer e.changing.Unlock()
	was := e.options.Load()
	g, err := was.Change(r.Options, s.sharing)
	if err != nil {
		return out, refused(err)
	}
	if s.sharing != config.Unshared {
		if err := e.Virtual.Guest.SetShare(g.CardTime.Node()); err != nil {
			return out, refused(err)
		}
	}
	e.Virtual.Guest.SetShadow(g.Shadow.Policy())
	e.options.Store(&g)
	out = s.status(e, s.ledger())
	out.Changes = s.changes("GPU", config.Settings(was), config.Settings(&g), "gpu", name, "options", r.Options)
	return out, nil
}

// changes lists the options that differ, and logs them.
func (s *Server) changes(what string, before, after []api.Setting, about ...any) (out []api.Change) {
	for i, was := range before {
		if now := after[i].Value; now != was.Value {
			out = append(out, api.Change{Key: was.Key, Before: was.Value, After: now})
		}
	}
	if len(out) == 0 {
		s.log.Info(what+" unchanged: the options have these values already", about...)
	} else {
		s.log.Info(what+" changed", append(about, "changed", api.ChangesText(out))...)
	}
	return out
}

// Show implements api.Backend.
func (s *Server) Show(name string) (api.GPUReport, error) {
	e, err := s.find(name)
	if err != nil {
		return api.GPUReport{}, err
	}
	out := e.Report()
	out.GPU = s.status(e, s.ledger())
	if s.Shared == nil {
		out.Settings = slices.DeleteFunc(config.Settings(s.Config), func(o api.Setting) bool { return o.Live })
	} else {
		out.Settings = e.options.Load().Settings(s.sharing, s.Schedule())
	}
	return out, nil
}

// Remove implements api.Backend.
func (s *Server) Remove(name string, force bool) (r api.GPUReport, err error) {
	if err := s.needShared(); err != nil {
		return r, err
	}
	e, err := s.find(name)
	if err != nil {
		return r, err
	}
	switch r, err = e.Remove(force); {
	case errors.Is(err, ErrAttached):
		err = api.Conflict("GPU %s: a client is attached; end it, or disconnect it with --force", name)
	case errors.Is(err, vfiouser.ErrStuck):
		err = api.Conflict("GPU %s: %v; the GPU refuses clients, and is removed once the thread has ended", name, err)
	case err != nil:
		err = fmt.Errorf("GPU %s: %w", name, err)
	default:
		s.log.Info("GPU removed", "gpu", name)
	}
	return r, err
}
