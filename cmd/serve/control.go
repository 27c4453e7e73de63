package serve

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
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
	ledger, endpoints := s.ledger(), s.Endpoints()
	out := api.Status{
		Version: s.Version, PID: os.Getpid(), Uptime: time.Since(s.began), Setup: s.setup(), GPUs: []api.GPU{},
		Card: s.card(endpoints, ledger).Card,
	}
	for _, e := range endpoints {
		out.GPUs = append(out.GPUs, s.status(e, ledger))
	}
	return out, nil
}

// card is what the card did for these endpoints, and what is left of it.
func (s *Server) card(endpoints []*Endpoint, ledger []sched.Entry) api.CardReport {
	out := ReportCard(s.Card)
	out.Kind, out.VRAM = s.Config.Card.Kind, uint64(s.Config.Card.VRAM)
	if s.Card != nil {
		out.Programs, out.Interpreted = programCounts(s.Card), interpreted(s.Config, s.Card.Compiled())
	}
	if s.Shared == nil {
		return out
	}
	used, channels := config.Size(0), 0
	for _, e := range endpoints {
		used += config.Size(e.Config.Share.VRAM + e.Config.Share.Tables)
		channels += e.Config.Share.Guaranteed
	}
	if s.sharing != config.Unshared {
		counts := s.Shared.agg.ScheduleCounts()
		out.Policy, out.Ledger, out.Scheduler = s.policy(), treeOf(ledger), &counts
	}
	left, room := s.Config.Room(used)
	out.VRAMFree, out.VRAMRoom, out.ChannelsFree = uint64(left), uint64(room), gf100.Channels-channels
	return out
}

// status is the status of a GPU.
func (s *Server) status(e *Endpoint, ledger []sched.Entry) api.GPU {
	g := e.Status()
	s.complete(&g, e, ledger)
	return g
}

// complete adds to the status of a GPU what its endpoint does not know.
func (s *Server) complete(g *api.GPU, e *Endpoint, ledger []sched.Entry) {
	if e.Virtual != nil {
		g.CardTime = cardTime(ledger, e.Name)
		if s.sharing != config.Unshared {
			g.Share = e.share()
		}
		return
	}
	// The guest is the card's only one, so its counts are the card's.
	card := ReportCard(s.Card)
	g.VRAM, g.Bytes = uint64(s.Config.Card.VRAM), card.Bytes
	f := &card.Faults
	g.Counts["program_faults"] = s.Card.Stats().ProgramFaults.Load()
	g.Counts["mmu_faults"], g.Counts["pbdma_errors"], g.Counts["engine_errors"], g.Counts["window_faults"] = f.MMU, f.PBDMA, f.Engine, f.BAR
	g.Faults = faultsOf(g.Counts)
}

// Report implements api.Backend.
func (s *Server) Report() (api.Report, error) { return s.report((*Endpoint).Report) }

// numbers is the report for Prometheus, which asks often.
func (s *Server) numbers() (api.Report, error) { return s.report((*Endpoint).numbers) }

func (s *Server) report(of func(*Endpoint) api.GPUReport) (api.Report, error) {
	ledger, endpoints := s.ledger(), s.Endpoints()
	r := api.Report{Event: "report", Uptime: time.Since(s.began), Setup: s.setup(), Card: s.card(endpoints, ledger), GPUs: []api.GPUReport{}}
	for _, e := range endpoints {
		g := of(e)
		s.complete(&g.GPU, e, ledger)
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
		return nil, api.NotFound("gpu", name, "there is no GPU %s: there are none", name)
	}
	return nil, api.NotFound("gpu", name, "there is no GPU %s; %s", name, config.Known(name, names))
}

// refused makes an API error of err: Invalid if the request itself is wrong, else
// Conflict.
func refused(err error) error {
	if errors.As(err, new(*config.Error)) {
		return &api.Error{Code: http.StatusBadRequest, Message: err.Error(), Causes: causes(err)}
	}
	return conflict(err)
}

// conflict makes an API error of err, which is the server's present state.
func conflict(err error) error {
	return &api.Error{Code: http.StatusConflict, Message: err.Error(), Causes: causes(err)}
}

// causes lists what is wrong.
func causes(err error) (out []api.Cause) {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range list.Unwrap() {
			out = append(out, causes(e)...)
		}
		return out
	}
	if wrong := new(config.Error); errors.As(err, &wrong) {
		return []api.Cause{api.NewCause(wrong.Where, wrong.Value, wrong.Reason)}
	}
	return []api.Cause{api.NewCause("server", "", err.Error())}
}

// needShared refuses changes of virtual GPUs in pass-through.
func (s *Server) needShared() error {
	if s.Shared == nil {
		return api.Conflict("socket", s.Config.Socket, "this server gives the whole card to one guest; to share a card, start a server with --gpu or with gpus in its configuration file")
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
	if err := s.permitted(g.Where("rom"), g.ROM); err != nil {
		return out, refused(err)
	}
	if from == nil {
		if err := resolve(socket.Path, socket.Where); err != nil {
			return out, refused(err)
		}
		if err := s.permitted(socket.Where, *socket.Path); err != nil {
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
			return out, api.Conflict("name", g.Name, "a GPU named %s is running already; remove it first or choose another name", g.Name)
		case there.Socket == g.Socket:
			return out, conflict(&config.Error{Where: g.Where("socket"), Value: g.Socket, Reason: fmt.Sprintf("GPU %s listens there already; choose another path", there.Name)})
		default:
			all = append(all, *there)
		}
	}
	all = append(all, g)
	if err := cmp.Or(s.Config.Fit(all), s.Config.FitAddresses(all, config.Size(addressSpace()))); err != nil {
		return out, conflict(err)
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
	s.complete(&out.GPU, e, s.ledger())
	if s.Shared == nil {
		out.Settings = slices.DeleteFunc(config.Settings(s.Config), func(o api.Setting) bool { return o.Live })
	} else {
		out.Settings = e.options.Load().Settings(s.sharing, s.Schedule())
	}
	return out, nil
}

// Save implements api.Backend.
func (s *Server) Save() (out api.Saved, err error) {
	var gpus []config.GPU
	if s.Shared != nil {
		for _, e := range s.Endpoints() {
			gpus = append(gpus, *e.options.Load())
		}
	}
	text, err := s.Config.Save(s.Schedule(), gpus)
	out.YAML = string(text)
	return out, err
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
		err = api.Conflict("gpu", name, "GPU %s: a client is attached; end it, or disconnect it with --force", name)
	case errors.Is(err, vfiouser.ErrStuck):
		err = api.Conflict("gpu", name, "GPU %s: %v; the GPU refuses clients, and is removed once the thread has ended", name, err)
	case err != nil:
		err = fmt.Errorf("GPU %s: %w", name, err)
	default:
		s.log.Info("GPU removed", "gpu", name)
	}
	return r, err
}
