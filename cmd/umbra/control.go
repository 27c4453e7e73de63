package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/vfiouser"
)

var _ api.Backend = (*served)(nil)

// Status implements api.Backend.
func (s *served) Status() (api.Status, error) {
	card := serve.ReportCard(s.Card)
	out := api.Status{
		Version: versionString(), PID: os.Getpid(), Uptime: time.Since(s.began), Setup: s.setup(),
		Card: api.Card{Kind: s.cfg.Card.Kind, VRAM: s.plan.Card.VRAM, Interrupts: card.Interrupts, Faults: card.Faults},
		GPUs: []api.GPU{},
	}
	out.Card.Bytes = card.Bytes()
	times := s.cardTimes()
	for _, e := range s.Endpoints() {
		g := e.Status()
		s.complete(&g, e, times)
		out.GPUs = append(out.GPUs, g)
	}
	if s.Shared == nil {
		return out, nil
	}
	if c, _ := s.Shared.Schedule(); c != nil {
		out.Card.Policy, out.Card.Ledger = c.Policy.String(), s.Shared.Ledger()
	}
	used, channels := config.Size(0), 0
	for _, e := range s.Shared.GPUs() {
		used += config.Size(e.Config.Share.VRAM + e.Config.Share.Tables)
		channels += e.Config.Share.Guaranteed
	}
	left, room := s.cfg.Room(used)
	out.Card.VRAMFree, out.Card.VRAMRoom, out.Card.ChannelsFree = uint64(left), uint64(room), gf100.Channels-channels
	return out, nil
}

func (s *served) setup() string {
	if s.Shared == nil {
		return api.SetupPassThrough
	}
	return api.SetupVirtual
}

// cardTimes returns the accounts of virtual GPUs by name, if there is a scheduler.
func (s *served) cardTimes() map[string]*api.LedgerNode {
	if s.Shared == nil {
		return nil
	}
	return s.Shared.CardTimes()
}

// complete adds to a GPU what its endpoint does not know.
func (s *served) complete(g *api.GPU, e *serve.Endpoint, times map[string]*api.LedgerNode) {
	if e.Virtual == nil {
		// The guest is the card's only one, so its counts are the card's.
		card := serve.ReportCard(s.Card)
		g.Socket, g.VRAM, g.Bytes = s.at.path, s.plan.Card.VRAM, card.Bytes()
		f := &card.Faults
		g.Counts["program_faults"] = s.Card.Stats().ProgramFaults.Load()
		g.Counts["mmu_faults"], g.Counts["pbdma_errors"], g.Counts["engine_errors"], g.Counts["window_faults"] = f.MMU, f.PBDMA, f.Engine, f.BAR
		return
	}
	now, ok := s.gpu(e.Name)
	if !ok {
		return
	}
	g.CardTime = times[g.Name]
	if s.plan.Scheduled() {
		share := shareOf(&now)
		g.Share = &share
	}
}

// gpu returns the options in force of a virtual GPU.
func (s *served) gpu(name string) (config.GPU, bool) {
	s.nowMu.Lock()
	defer s.nowMu.Unlock()
	i := indexGPU(s.gpus, name)
	if i < 0 {
		return config.GPU{}, false
	}
	return s.gpus[i], true
}

func indexGPU(gpus []config.GPU, name string) int {
	return slices.IndexFunc(gpus, func(g config.GPU) bool { return g.Name == name })
}

// change replaces the list of virtual GPUs by what f makes of a copy.
func (s *served) change(f func([]config.GPU) []config.GPU) {
	s.nowMu.Lock()
	defer s.nowMu.Unlock()
	s.gpus = f(slices.Clone(s.gpus))
}

func shareOf(g *config.GPU) api.Share {
	return api.Share{Name: g.Name, Weight: g.Weight, Cap: int(g.Cap), Priority: g.Priority}
}

// Report implements api.Backend.
func (s *served) Report() (api.Report, error) {
	r := api.Report{Event: "report", Uptime: time.Since(s.began), Setup: s.setup(), Card: serve.ReportCard(s.Card), GPUs: []api.GPUReport{}}
	if s.Shared != nil {
		r.Ledger = s.Shared.Ledger()
	}
	times := s.cardTimes()
	for _, e := range s.Endpoints() {
		g, err := e.Report()
		if err != nil {
			return r, err
		}
		s.complete(&g.GPU, e, times)
		r.GPUs = append(r.GPUs, g)
	}
	return r, nil
}

// report writes the report to the standard output.
func (s *served) report() error {
	r, err := s.Report()
	if err != nil {
		return err
	}
	return s.out.write(r, reportText(&r))
}

// Registers implements api.Backend.
func (s *served) Registers(gpu string) (api.RegisterTable, error) {
	of := s.Endpoints()
	if gpu != "" {
		of = slices.DeleteFunc(of, func(e *serve.Endpoint) bool { return e.Name != gpu })
		if len(of) == 0 {
			return api.RegisterTable{}, s.unknown(gpu)
		}
	}
	return serve.Registers(of...)
}

// unknown is the error for a GPU that does not exist.
func (s *served) unknown(name string) error {
	var names []string
	for _, e := range s.Endpoints() {
		names = append(names, e.Name)
	}
	if len(names) == 0 {
		return api.NotFound("there is no GPU %s: there are none", name)
	}
	return api.NotFound("there is no GPU %s; %s", name, config.Known(name, names))
}

// refused makes an API error of err: Invalid if the request itself is wrong, else
// Conflict.
func refused(err error) error {
	if wrong := new(config.Error); errors.As(err, &wrong) {
		return api.Invalid("%v", err)
	}
	return api.Conflict("%v", err)
}

// errPassThrough is the error for a change of virtual GPUs in pass-through.
func errPassThrough() error {
	return api.Conflict("this server gives the whole card to one guest; to share a card, start a server with --gpu or with gpus in its configuration file")
}

// Add implements api.Backend. The new GPU must fit beside the others as those of a
// configuration file must.
func (s *served) Add(a api.AddRequest) (api.GPU, error) {
	if s.Shared == nil {
		return api.GPU{}, errPassThrough()
	}
	g, err := s.cfg.NewGPU(a.GPU)
	if err != nil {
		return api.GPU{}, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.Socket, err = socketPath(g.Socket, g.Where("socket")); err != nil {
		return api.GPU{}, refused(err)
	}
	s.nowMu.Lock()
	gpus := s.gpus
	s.nowMu.Unlock()
	for i := range gpus {
		switch there := &gpus[i]; {
		case there.Name == g.Name:
			return api.GPU{}, api.Conflict("a GPU named %s is running already; remove it first or choose another name", g.Name)
		case there.Socket == g.Socket:
			return api.GPU{}, api.Conflict("%s: %s: GPU %s listens there already; choose another path", g.Where("socket"), g.Socket, there.Name)
		}
	}
	all := append(slices.Clip(gpus), g)
	if err := s.cfg.Fit(all); err != nil {
		return api.GPU{}, api.Conflict("%v", err)
	}
	g = all[len(all)-1]
	cfg, err := parts.GPU(&g)
	if err != nil {
		return api.GPU{}, refused(err)
	}
	cfg.Socket = g.Socket
	l, err := vfiouser.Listen(cfg.Socket)
	if err != nil {
		return api.GPU{}, refused(err)
	}
	e, err := s.Shared.Add(cfg, l)
	if err != nil {
		return api.GPU{}, err
	}
	s.change(func(gpus []config.GPU) []config.GPU { return append(gpus, g) })
	s.log.Info("GPU added", "gpu", g.Name, "vram", g.VRAM, "channels", g.Channels, "socket", cfg.Socket)
	out := e.Status()
	s.complete(&out, e, s.cardTimes())
	return out, nil
}

// Set implements api.Backend.
func (s *served) Set(name string, r api.SetRequest) (api.GPU, error) {
	if s.Shared == nil {
		return api.GPU{}, errPassThrough()
	}
	e := s.Shared.Find(name)
	if e == nil {
		return api.GPU{}, s.unknown(name)
	}
	e.Changing.Lock() // not s.mu: the GPU's worker may be at work for long
	defer e.Changing.Unlock()
	was, ok := s.gpu(name)
	if !ok {
		return api.GPU{}, s.unknown(name)
	}
	g, err := was.Change(r.Options, s.plan.Scheduled())
	if err != nil {
		return api.GPU{}, refused(err)
	}
	policy, err := g.Shadow.Policy()
	if err == nil {
		err = e.Virtual.Guest.SetShadow(policy)
	}
	if err == nil && s.plan.Scheduled() {
		err = e.SetCardTime(g.CardTime.Node())
	}
	if err != nil {
		return api.GPU{}, refused(err)
	}
	s.change(func(gpus []config.GPU) []config.GPU {
		if i := indexGPU(gpus, name); i >= 0 {
			gpus[i] = g
		}
		return gpus
	})
	out := e.Status()
	s.complete(&out, e, s.cardTimes())
	out.Changes = changes(config.Settings(&was), config.Settings(&g))
	s.logChange("GPU", out.Changes, "gpu", name, "options", r.Options)
	return out, nil
}

// changes lists the options that differ.
func changes(before, after []api.Setting) (out []api.Change) {
	for i, was := range before {
		if now := after[i].Value; now != was.Value {
			out = append(out, api.Change{Key: was.Key, Before: was.Value, After: now})
		}
	}
	return out
}

// logChange logs options that were changed.
func (s *served) logChange(what string, changed []api.Change, about ...any) {
	if len(changed) == 0 {
		s.log.Info(what+" unchanged: the options have these values already", about...)
		return
	}
	s.log.Info(what+" changed", append(about, "changed", changesText(changed))...)
}

// Show implements api.Backend.
func (s *served) Show(name string) (api.GPUReport, error) {
	e, settings := s.Whole, slices.DeleteFunc(config.Settings(s.cfg), func(o api.Setting) bool { return o.Live })
	switch {
	case s.Shared != nil:
		g, ok := s.gpu(name)
		if e = s.Shared.Find(name); e == nil || !ok {
			return api.GPUReport{}, s.unknown(name)
		}
		var from *config.Schedule
		if s.plan.Scheduled() {
			s.nowMu.Lock()
			from = new(s.schedule)
			s.nowMu.Unlock()
		}
		settings = g.Settings(from)
	case name != e.Name:
		return api.GPUReport{}, s.unknown(name)
	}
	out, err := e.Report()
	if err != nil {
		return out, err
	}
	s.complete(&out.GPU, e, s.cardTimes())
	out.Settings = settings
	return out, nil
}

// Remove implements api.Backend.
func (s *served) Remove(name string, force bool) (api.GPUReport, error) {
	if s.Shared == nil {
		return api.GPUReport{}, errPassThrough()
	}
	r, err := s.Shared.Remove(name, force)
	switch err {
	case serve.ErrNoGPU:
		return r, s.unknown(name)
	case serve.ErrAttached:
		return r, api.Conflict("GPU %s: a client is attached; end it, or disconnect it with --force", name)
	}
	s.change(func(gpus []config.GPU) []config.GPU {
		return slices.DeleteFunc(gpus, func(g config.GPU) bool { return g.Name == name })
	})
	if errors.Is(err, vfiouser.ErrStuck) {
		return r, api.Conflict("GPU %s: %v; the GPU refuses clients, and is removed once the thread has ended", name, err)
	}
	if err != nil {
		return r, fmt.Errorf("GPU %s: %w", name, err)
	}
	s.log.Info("GPU removed", "gpu", name)
	return r, nil
}

// errNoScheduler is the error for requests about the scheduler where there is none.
func (s *served) errNoScheduler() error {
	switch {
	case s.Shared == nil:
		return errPassThrough()
	case !s.plan.Scheduled():
		return api.Conflict("there is no scheduler: work is given to the card as it comes; %s", config.WithScheduler)
	}
	return nil
}

// Scheduler implements api.Backend.
func (s *served) Scheduler() (api.Scheduler, error) {
	if err := s.errNoScheduler(); err != nil {
		return api.Scheduler{}, err
	}
	_, counts := s.Shared.Schedule()
	s.nowMu.Lock()
	options, gpus := s.schedule, s.gpus
	s.nowMu.Unlock()
	out := api.Scheduler{
		Policy: options.Policy, Settings: options.Settings(), Counts: counts, Ledger: s.Shared.Ledger(), Shares: []api.Share{},
	}
	for i := range gpus {
		out.Shares = append(out.Shares, shareOf(&gpus[i]))
	}
	return out, nil
}

// SetScheduler implements api.Backend.
func (s *served) SetScheduler(r api.SetRequest) (api.Scheduler, error) {
	if err := s.errNoScheduler(); err != nil {
		return api.Scheduler{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.schedule
	changed, err := was.Change(r.Options)
	if err != nil {
		return api.Scheduler{}, refused(err)
	}
	c, err := changed.Config()
	if err == nil {
		err = s.Shared.SetSchedule(*c)
	}
	if err != nil {
		return api.Scheduler{}, refused(err)
	}
	s.nowMu.Lock()
	s.schedule = changed
	s.nowMu.Unlock()
	out, err := s.Scheduler()
	out.Changes = changes(was.Settings(), out.Settings)
	s.logChange("scheduler", out.Changes, "options", r.Options)
	return out, err
}
