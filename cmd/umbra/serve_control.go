package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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
	c := s.reportCard()
	out := api.Status{
		Version: versionString(), PID: os.Getpid(), Seconds: time.Since(s.began).Seconds(), Setup: api.SetupPassThrough,
		Card: api.Card{Kind: s.layer.Config.Card.Kind, VRAM: s.cardConfig.VRAM, Interrupts: c.Interrupts, Faults: c.Faults},
		GPUs: []api.GPU{},
	}
	for _, k := range c.Classes {
		out.Card.Bytes += k.Bytes
	}
	if s.shared == nil {
		g := gpuStatus(s.seat)
		g.Bytes = out.Card.Bytes
		g.Socket, g.VRAM = s.at.path, s.cardConfig.VRAM
		out.GPUs = append(out.GPUs, g)
		return out, nil
	}
	out.Setup = api.SetupVirtual
	out.Card.Scheduler, out.Card.Schedule = s.shared.Schedule()
	out.Card.Ledger = s.shared.Ledger()
	times := s.shared.CardTimes()
	taken, channels := config.Size(0), 0
	for _, v := range s.shared.GPUs() {
		g := s.virtualStatus(v)
		if t, ok := times[g.Name]; ok {
			g.CardTime = &t
		}
		out.GPUs = append(out.GPUs, g)
		taken += config.Size(g.VRAM + g.Tables)
		channels += v.Config.Share.Guaranteed
	}
	left, room := s.layer.Room(taken)
	out.Card.Free, out.Card.Room, out.Card.Channels = uint64(left), uint64(room), gf100.Channels-channels
	return out, nil
}

func (s *served) virtualStatus(v *serve.VirtualEndpoint) api.GPU {
	g := gpuStatus(v.Endpoint)
	share := &v.Config.Share
	g.Socket, g.VRAM, g.Tables, g.Channels = v.Config.Socket, share.VRAM, share.Tables, share.Channels
	live := config.GPU{Shadow: config.ShadowOf(v.Virtual.Guest.Shadow()), CardTime: timeOf(v)}
	g.Options = live.Live()
	if s.limits.Scheduler == nil {
		config.OmitCardTime(g.Options)
	}
	g.ShadowNS = v.Virtual.Guest.Stats().ShadowTime.Load()
	g.Work = v.Work()
	for _, w := range g.Work {
		g.Bytes += w.Bytes
	}
	if err := v.Virtual.Dirty(); err != nil {
		g.OutOfService = err.Error()
	}
	g.Quarantine = v.Virtual.Guest.QuarantineReason()
	return g
}

func timeOf(v *serve.VirtualEndpoint) config.CardTime {
	t := v.CardTime()
	return config.CardTimeOf(t.Node, t.Processes, t.Kept)
}

func gpuStatus(seat *serve.Endpoint) api.GPU {
	stats := seat.Server.Stats()
	g := api.GPU{Name: seat.Name, Counts: seat.Counts(), Inexact: seat.Inexact(), Attached: seat.Device.HasClient(), Clients: stats.Clients, Interrupts: stats.IRQ.Signalled}
	for _, r := range seat.Device.Traps() {
		g.Traps += r.Reads + r.Writes
	}
	return g
}

// Report implements api.Backend.
func (s *served) Report() (serve.Report, error) { return s.collect() }

// Registers implements api.Backend.
func (s *served) Registers(gpu string) (serve.PolicyTable, error) {
	t, err := serve.NewPolicyTable()
	if err != nil {
		return t, err
	}
	for _, seat := range s.seats() {
		if gpu == "" || gpu == seat.Name {
			t.Count(seat)
		}
	}
	if gpu != "" && t.GPUs == nil {
		return t, s.unknown(gpu)
	}
	return t, nil
}

// unknown says that there is no such GPU, and which one might be meant.
func (s *served) unknown(name string) error {
	var names []string
	for _, seat := range s.seats() {
		names = append(names, seat.Name)
	}
	if len(names) == 0 {
		return api.NotFound("there is no GPU %s: there are none", name)
	}
	return api.NotFound("there is no GPU %s; %s", name, config.Known(name, names))
}

// refused makes what is wrong with a request by itself, and what cannot be as things
// are, the client's errors.
func refused(err error) error {
	if wrong := new(config.Error); errors.As(err, &wrong) {
		return api.Invalid("%v", err)
	}
	return api.Conflict("%v", err)
}

// errPassThrough says why nothing can be added or removed.
func (s *served) errPassThrough() error {
	return api.Conflict("this server gives the whole card to one guest; start one with gpus in its file, or --gpu, to share it")
}

// Add implements api.Backend: it holds the new GPU against those that are
// there as the configuration is held against itself.
func (s *served) Add(a api.AddRequest) (api.GPU, error) {
	if s.shared == nil {
		return api.GPU{}, s.errPassThrough()
	}
	g, err := config.ParseAdded(a.GPU)
	if err == nil {
		err = s.layer.Complete(&g)
	}
	if err != nil {
		return api.GPU{}, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	socket, err := socketPath(g.Socket, g.Where("socket"))
	if err != nil {
		return api.GPU{}, refused(err)
	}
	for i := range s.gpus {
		switch there := &s.gpus[i]; {
		case there.Name == g.Name:
			return api.GPU{}, api.Conflict("a GPU named %s is running already; remove it first or choose another name", g.Name)
		case there.Socket == socket:
			return api.GPU{}, api.Conflict("%s: %s: GPU %s listens there already; choose another path", g.Where("socket"), socket, there.Name)
		}
	}
	g.Socket = socket
	all := append(s.gpus[:len(s.gpus):len(s.gpus)], g)
	if err := s.layer.Fit(all); err != nil {
		return api.GPU{}, api.Conflict("%v", err)
	}
	g = all[len(all)-1]
	cfg, err := parts.GPU(&g)
	if err != nil {
		return api.GPU{}, refused(err)
	}
	cfg.Socket = socket
	l, err := vfiouser.Listen(cfg.Socket)
	if err != nil {
		return api.GPU{}, refused(err)
	}
	v, err := s.shared.Add(cfg, l)
	if err != nil {
		return api.GPU{}, err
	}
	s.gpus = all
	s.log.Info("GPU added", "gpu", g.Name, "vram", g.VRAM, "channels", g.Channels, "socket", cfg.Socket)
	out := s.virtualStatus(v)
	return out, nil
}

// Set implements api.Backend.
func (s *served) Set(name string, r api.SetRequest) (api.GPU, error) {
	if s.shared == nil {
		return api.GPU{}, s.errPassThrough()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.shared.Find(name)
	i := slices.IndexFunc(s.gpus, func(g config.GPU) bool { return g.Name == name })
	if v == nil || i < 0 {
		return api.GPU{}, s.unknown(name)
	}
	g, err := s.layer.Change(s.gpus[i], r.Options)
	if err == nil && s.limits.Scheduler == nil {
		err = config.CheckScheduled(&g, r.Options)
	}
	if err != nil {
		return api.GPU{}, refused(err)
	}
	was := s.virtualStatus(v).Options
	p, err := g.Shadow.Policy()
	if err == nil {
		err = v.Virtual.Guest.SetShadow(p)
	}
	if err != nil {
		return api.GPU{}, refused(err)
	}
	if s.limits.Scheduler != nil {
		if err := v.SetCardTime(serve.TimeShare{Node: g.CardTime.Node(), Processes: g.CardTime.Shares(), Kept: g.CardTime.Kept()}); err != nil {
			return api.GPU{}, refused(err)
		}
	}
	s.gpus[i] = g
	out := s.virtualStatus(v)
	out.Was = differing(was, out.Options)
	s.logChange("GPU", out.Options, out.Was, "gpu", name, "options", r.Options)
	return out, nil
}

// differing are the values before of options that are others now.
func differing(was, now map[string]any) map[string]any {
	out := make(map[string]any)
	for key, before := range was {
		if optionText(before) != optionText(now[key]) {
			out[key] = before
		}
	}
	return out
}

// logChange tells the log which options of something are others now, and what they were.
// Who set what was so already has changed nothing.
func (s *served) logChange(what string, now, was map[string]any, about ...any) {
	if len(was) == 0 {
		s.log.Info(what+" unchanged: what was set is so already", about...)
		return
	}
	s.log.Info(what+" changed", append(about, "changed", changesText(now, was))...)
}

// changesText is options that are others now, with what they were.
func changesText(now, was map[string]any) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(was)) {
		out = append(out, fmt.Sprintf("%s=%s (was %s)", key, optionText(now[key]), optionText(was[key])))
	}
	return strings.Join(out, " ")
}

// schedule is how the card's time is shared now.
func (s *served) schedule() config.Schedule {
	if s.limits.Scheduler == nil {
		return s.layer.Config.Schedule()
	}
	c, _ := s.shared.Schedule()
	return config.ScheduleOf(c)
}

// Show implements api.Backend.
func (s *served) Show(name string) (api.Shown, error) {
	if s.shared == nil {
		if name != s.seat.Name {
			return api.Shown{}, s.unknown(name)
		}
		st, err := s.Status()
		if err != nil {
			return api.Shown{}, err
		}
		return api.Shown{GPU: st.GPUs[0], Settings: settings(s.layer.Config.CardSettings())}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.shared.Find(name)
	i := slices.IndexFunc(s.gpus, func(g config.GPU) bool { return g.Name == name })
	if v == nil || i < 0 {
		return api.Shown{}, s.unknown(name)
	}
	out := api.Shown{GPU: s.virtualStatus(v), Settings: settings(s.gpus[i].Settings(s.limits.Scheduler != nil))}
	if t, ok := s.shared.CardTimes()[name]; ok {
		out.CardTime = &t
	}
	return out, nil
}

func settings(of []config.Setting) (out []api.Setting) {
	for _, o := range of {
		out = append(out, api.Setting(o))
	}
	return out
}

// Remove implements api.Backend.
func (s *served) Remove(name string, force bool) (serve.GPUReport, error) {
	if s.shared == nil {
		return serve.GPUReport{}, s.errPassThrough()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.shared.Remove(name, force)
	switch err {
	case serve.ErrNoGPU:
		return r, s.unknown(name)
	case serve.ErrAttached:
		return r, api.Conflict("GPU %s: a client is attached; end it, or cut it off with --force", name)
	}
	for i := range s.gpus {
		if s.gpus[i].Name == name {
			s.gpus = append(s.gpus[:i:i], s.gpus[i+1:]...)
			break
		}
	}
	if err != nil {
		return r, fmt.Errorf("GPU %s: %w", name, err)
	}
	s.log.Info("GPU removed", "gpu", name)
	return r, nil
}
