package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Control answers the control API's requests about a running server.
type Control struct {
	Version   string
	Began     time.Time
	Config    *config.Config // at the start
	Card      *soft.Card
	Whole     *Endpoint // of a guest that has the whole card, else nil
	Socket    string    // of Whole
	Shared    *Shared   // of virtual GPUs, else nil
	Scheduled bool
	Describe  func(*config.GPU) (GPUConfig, error) // makes what options of a new GPU describe
	Log       *slog.Logger

	mu       sync.Mutex                      // one Add, or change of the scheduler, at a time; never held while a client is waited for, until the end
	schedule atomic.Pointer[config.Schedule] // in force, if it was changed
}

var _ api.Backend = (*Control)(nil)

// Finish calls end when no late request changes the card any more.
func (c *Control) Finish(end func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return end()
}

func (c *Control) endpoints() []*Endpoint {
	if c.Shared == nil {
		return []*Endpoint{c.Whole}
	}
	return c.Shared.GPUs()
}

func (c *Control) setup() string {
	if c.Shared == nil {
		return api.SetupPassThrough
	}
	return api.SetupVirtual
}

// cardTimes returns the accounts of virtual GPUs by name, if there is a scheduler.
func (c *Control) cardTimes() map[string]*api.LedgerNode {
	if c.Shared == nil {
		return nil
	}
	return c.Shared.CardTimes()
}

// Schedule returns how the card's time is shared now.
func (c *Control) Schedule() config.Schedule {
	if s := c.schedule.Load(); s != nil {
		return *s
	}
	return c.Config.Schedule()
}

// Status implements api.Backend.
func (c *Control) Status() (api.Status, error) {
	card := ReportCard(c.Card)
	out := api.Status{
		Version: c.Version, PID: os.Getpid(), Uptime: time.Since(c.Began), Setup: c.setup(), GPUs: []api.GPU{},
		Card: api.Card{Kind: c.Config.Card.Kind, VRAM: uint64(c.Config.Card.VRAM), Interrupts: card.Interrupts, Faults: card.Faults, Bytes: card.Bytes()},
	}
	times := c.cardTimes()
	used, channels := config.Size(0), 0
	for _, e := range c.endpoints() {
		out.GPUs = append(out.GPUs, c.complete(e.Status(), e, times))
		used += config.Size(e.Config.Share.VRAM + e.Config.Share.Tables)
		channels += e.Config.Share.Guaranteed
	}
	if c.Shared == nil {
		return out, nil
	}
	if s, _ := c.Shared.Schedule(); s != nil {
		out.Card.Policy, out.Card.Ledger = s.Policy.String(), c.Shared.Ledger()
	}
	left, room := c.Config.Room(used)
	out.Card.VRAMFree, out.Card.VRAMRoom, out.Card.ChannelsFree = uint64(left), uint64(room), gf100.Channels-channels
	return out, nil
}

// complete adds to a GPU what its endpoint does not know.
func (c *Control) complete(g api.GPU, e *Endpoint, times map[string]*api.LedgerNode) api.GPU {
	if e.Virtual == nil {
		// The guest is the card's only one, so its counts are the card's.
		card := ReportCard(c.Card)
		g.Socket, g.VRAM, g.Bytes = c.Socket, uint64(c.Config.Card.VRAM), card.Bytes()
		f := &card.Faults
		g.Counts["program_faults"] = c.Card.Stats().ProgramFaults.Load()
		g.Counts["mmu_faults"], g.Counts["pbdma_errors"], g.Counts["engine_errors"], g.Counts["window_faults"] = f.MMU, f.PBDMA, f.Engine, f.BAR
		return g
	}
	g.CardTime = times[g.Name]
	if c.Scheduled {
		g.Share = e.share()
	}
	return g
}

func (e *Endpoint) share() *api.Share {
	g := e.Options()
	return &api.Share{Name: g.Name, Weight: g.Weight, Cap: int(g.Cap), Priority: g.Priority}
}

// Report implements api.Backend.
func (c *Control) Report() (api.Report, error) {
	r := api.Report{Event: "report", Uptime: time.Since(c.Began), Setup: c.setup(), Card: ReportCard(c.Card), GPUs: []api.GPUReport{}}
	if c.Shared != nil {
		r.Ledger = c.Shared.Ledger()
	}
	times := c.cardTimes()
	for _, e := range c.endpoints() {
		g := e.Report()
		g.GPU = c.complete(g.GPU, e, times)
		r.GPUs = append(r.GPUs, g)
	}
	return r, nil
}

// Registers implements api.Backend.
func (c *Control) Registers(gpu string) (api.RegisterTable, error) {
	if gpu == "" {
		return Registers(c.endpoints()...)
	}
	e, err := c.find(gpu)
	if err != nil {
		return api.RegisterTable{}, err
	}
	return Registers(e)
}

// find returns the endpoint of that name.
func (c *Control) find(name string) (*Endpoint, error) {
	var names []string
	for _, e := range c.endpoints() {
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

// virtual refuses changes of virtual GPUs in pass-through.
func (c *Control) virtual() error {
	if c.Shared == nil {
		return api.Conflict("this server gives the whole card to one guest; to share a card, start a server with --gpu or with gpus in its configuration file")
	}
	return nil
}

// scheduled refuses requests about the scheduler where there is none.
func (c *Control) scheduled() error {
	if err := c.virtual(); err != nil || c.Scheduled {
		return err
	}
	return api.Conflict("there is no scheduler: work is given to the card as it comes; %s", config.WithScheduler)
}

// Add implements api.Backend. The new GPU must fit beside the others as those of a
// configuration file must.
func (c *Control) Add(a api.AddRequest) (out api.GPU, err error) {
	if err := c.virtual(); err != nil {
		return out, err
	}
	g, err := c.Config.NewGPU(a.GPU)
	if err != nil {
		return out, refused(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.Socket, err = SocketPath(g.Socket, g.Where("socket")); err != nil {
		return out, refused(err)
	}
	var all []config.GPU
	for _, e := range c.endpoints() {
		switch there := e.Options(); {
		case there.Name == g.Name:
			return out, api.Conflict("a GPU named %s is running already; remove it first or choose another name", g.Name)
		case there.Socket == g.Socket:
			return out, api.Conflict("%s: %s: GPU %s listens there already; choose another path", g.Where("socket"), g.Socket, there.Name)
		default:
			all = append(all, *there)
		}
	}
	all = append(all, g)
	if err := c.Config.Fit(all); err != nil {
		return out, api.Conflict("%v", err)
	}
	cfg, err := c.Describe(&all[len(all)-1])
	if err != nil {
		return out, refused(err)
	}
	l, err := vfiouser.Listen(cfg.Socket)
	if err != nil {
		return out, refused(err)
	}
	e, err := c.Shared.Add(cfg, l)
	if err != nil {
		return out, err
	}
	c.Log.Info("GPU added", "gpu", g.Name, "vram", g.VRAM, "channels", cfg.Options.Channels, "socket", cfg.Socket)
	return c.complete(e.Status(), e, c.cardTimes()), nil
}

// Set implements api.Backend.
func (c *Control) Set(name string, r api.SetRequest) (out api.GPU, err error) {
	if err := c.virtual(); err != nil {
		return out, err
	}
	e, err := c.find(name)
	if err != nil {
		return out, err
	}
	e.changing.Lock() // not c.mu: the GPU's worker may be at work for long
	defer e.changing.Unlock()
	was := e.Options()
	g, err := was.Change(r.Options, c.Scheduled)
	if err != nil {
		return out, refused(err)
	}
	policy, err := g.Shadow.Policy()
	if err == nil {
		err = e.Virtual.Guest.SetShadow(policy)
	}
	if err == nil && c.Scheduled {
		err = e.SetCardTime(g.CardTime.Node())
	}
	if err != nil {
		return out, refused(err)
	}
	e.options.Store(&g)
	out = c.complete(e.Status(), e, c.cardTimes())
	out.Changes = c.changes("GPU", config.Settings(was), config.Settings(&g), "gpu", name, "options", r.Options)
	return out, nil
}

// changes lists the options that differ, and logs them.
func (c *Control) changes(what string, before, after []api.Setting, about ...any) (out []api.Change) {
	for i, was := range before {
		if now := after[i].Value; now != was.Value {
			out = append(out, api.Change{Key: was.Key, Before: was.Value, After: now})
		}
	}
	if len(out) == 0 {
		c.Log.Info(what+" unchanged: the options have these values already", about...)
	} else {
		c.Log.Info(what+" changed", append(about, "changed", api.ChangesText(out))...)
	}
	return out
}

// Show implements api.Backend.
func (c *Control) Show(name string) (api.GPUReport, error) {
	e, err := c.find(name)
	if err != nil {
		return api.GPUReport{}, err
	}
	out := e.Report()
	out.GPU = c.complete(out.GPU, e, c.cardTimes())
	switch {
	case c.Shared == nil:
		out.Settings = slices.DeleteFunc(config.Settings(c.Config), func(o api.Setting) bool { return o.Live })
	case c.Scheduled:
		from := c.Schedule()
		out.Settings = e.Options().Settings(&from)
	default:
		out.Settings = e.Options().Settings(nil)
	}
	return out, nil
}

// Remove implements api.Backend.
func (c *Control) Remove(name string, force bool) (r api.GPUReport, err error) {
	if err := c.virtual(); err != nil {
		return r, err
	}
	if _, err := c.find(name); err != nil {
		return r, err
	}
	switch r, err = c.Shared.Remove(name, force); {
	case errors.Is(err, ErrNoGPU): // somebody else removed it
		_, err = c.find(name)
	case errors.Is(err, ErrAttached):
		err = api.Conflict("GPU %s: a client is attached; end it, or disconnect it with --force", name)
	case errors.Is(err, vfiouser.ErrStuck):
		err = api.Conflict("GPU %s: %v; the GPU refuses clients, and is removed once the thread has ended", name, err)
	case err != nil:
		err = fmt.Errorf("GPU %s: %w", name, err)
	default:
		c.Log.Info("GPU removed", "gpu", name)
	}
	return r, err
}

// Scheduler implements api.Backend.
func (c *Control) Scheduler() (out api.Scheduler, err error) {
	if err := c.scheduled(); err != nil {
		return out, err
	}
	now := c.Schedule()
	_, counts := c.Shared.Schedule()
	out = api.Scheduler{Policy: now.Policy, Settings: now.Settings(), Counts: counts, Ledger: c.Shared.Ledger(), Shares: []api.Share{}}
	for _, e := range c.endpoints() {
		out.Shares = append(out.Shares, *e.share())
	}
	return out, nil
}

// SetScheduler implements api.Backend.
func (c *Control) SetScheduler(r api.SetRequest) (out api.Scheduler, err error) {
	if err := c.scheduled(); err != nil {
		return out, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.Schedule()
	changed, err := was.Change(r.Options)
	if err != nil {
		return out, refused(err)
	}
	s, err := changed.Config()
	if err == nil {
		err = c.Shared.SetSchedule(*s)
	}
	if err != nil {
		return out, refused(err)
	}
	c.schedule.Store(&changed)
	out, err = c.Scheduler()
	out.Changes = c.changes("scheduler", was.Settings(), out.Settings, "options", r.Options)
	return out, err
}
