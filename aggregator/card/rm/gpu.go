package rm

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

// Config says what of a card is used, and how. Zero values are the defaults.
type Config struct {
	// Hang is how long work may keep others from an engine before its channel ends. Default 10 s.
	Hang time.Duration
	Log  func(format string, args ...any)
}

// Start starts the process of a share.
type Start func(share int, ev worker.Events) (*worker.Worker, error)

// baseSlice is the time slice of a guest of weight 1, in microseconds.
const baseSlice = 1000

// Channels is the most that the host's driver makes on a card.
const Channels = 2044

// The engines of a GPU: a runlist each of guests, and the copy engine that shares the channels of graphics.
const engines = 3

// GPU is a card.
type GPU struct {
	cfg     Config
	start   Start
	info    nvrm.Info
	copy    int // the copy engine that works for guests' copy channels
	engines [engines]engine

	mu       sync.Mutex
	shares   [card.MaxShares]*share
	channels [Channels]*channel
	taken    uint64 // bytes of VRAM
}

var _ card.GPU = (*GPU)(nil)

// Open opens a card. It starts a process to ask what the card has.
func Open(cfg Config, start Start) (*GPU, error) {
	cfg.Hang = cmp.Or(cfg.Hang, 10*time.Second)
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	w, err := start(-1, noEvents{})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	g := &GPU{cfg: cfg, start: start}
	if g.info, err = w.Info(); err != nil {
		return nil, err
	}
	if len(g.info.Copies) == 0 {
		return nil, fmt.Errorf("%s: the driver lists no copy engine: guests need one", g.info.Name)
	}
	// Engine 4 copies inside the card's memory at 548 GB/s on an H200, where others reach 94. Engine 0 serves graphics channels.
	const fastest = 4
	if g.copy = g.info.Copies[len(g.info.Copies)-1]; slices.Contains(g.info.Copies, fastest) {
		g.copy = fastest
	}
	return g, nil
}

type noEvents struct{}

func (noEvents) Completed(int32)                    {}
func (noEvents) Stopped(uint32, uint32, nvrm.Fault) {}
func (noEvents) Ended(error)                        {}

// hostEngine is the card's engine of channels of a guest's engine, and engineOf is the reverse.
func (g *GPU) hostEngine(e card.Engine) int32 {
	if e <= card.Copy0 || e == card.NoEngine {
		return nvrm.Graphics
	}
	return int32(g.copy)
}

func (g *GPU) engineOf(host int32) (card.Engine, bool) {
	switch host {
	case nvrm.Graphics:
		return card.Graphics, true
	case int32(g.copy):
		return card.Copy0 + 1, true
	}
	return 0, false
}

// FreeBytes implements card.GPU.
func (g *GPU) FreeBytes() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.info.Free - min(g.info.Free, g.taken)
}

func (g *GPU) take(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken += n
}

// everyShare lists the shares.
func (g *GPU) everyShare() (list []*share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.shares {
		if s != nil {
			list = append(list, s)
		}
	}
	return list
}

// share returns the share with a number, or nil.
func (g *GPU) share(n uint64) *share {
	if n >= card.MaxShares {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shares[n]
}

// channel returns the channel with a number, or nil.
func (g *GPU) channel(id uint32) *channel {
	if id >= Channels {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.channels[id]
}

// enter gives ch a number, unless all that are free are guaranteed to other shares. It takes number prefer if
// that is free.
func (g *GPU) enter(ch *channel, prefer uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	free, reserved := Channels, 0
	for _, s := range g.shares {
		if s != nil {
			free -= s.used
			if s != ch.share {
				reserved += max(s.cfg.Guaranteed-s.used, 0)
			}
		}
	}
	if free <= 0 || free <= reserved && ch.share.used >= ch.share.cfg.Guaranteed {
		return false
	}
	if prefer >= Channels || g.channels[prefer] != nil {
		prefer = uint32(slices.Index(g.channels[:], nil))
	}
	g.channels[prefer], ch.id = ch, prefer
	ch.share.used++
	return true
}

func (g *GPU) leave(ch *channel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.channels[ch.id] = nil
	ch.share.used--
}

// Preempt implements card.GPU. A channel that may run stays.
func (g *GPU) Preempt(list ...card.Channel) bool {
	ok := true
	for _, c := range list {
		ch := c.(*channel)
		ok = ch.share.await(func() bool { return !ch.leaving() }) && ok
	}
	return ok
}

// Engines implements card.GPU.
func (g *GPU) Engines() int { return engines }

// Serving implements card.GPU. Several channels take turns on an engine, so nobody knows.
func (g *GPU) Serving(card.Engine) card.ChannelEvents { return nil }

// Poll implements card.GPU.
func (g *GPU) Poll() {
	for _, s := range g.everyShare() {
		s.deliver()
	}
}

// Meter implements card.GPU.
func (g *GPU) Meter() card.Meter { return meter{g} }

// Relocator implements card.GPU.
func (g *GPU) Relocator() card.Relocator { return relocator{g} }

// Culling implements card.GPU.
func (g *GPU) Culling() card.Culling { return card.Culling(g.info.Culling) }

// Time implements card.GPU: the driver sets the card's clock to that of the host.
func (g *GPU) Time() uint64 { return uint64(time.Now().UnixNano()) }

// Close implements card.GPU. It ends the processes of shares that were lost.
func (g *GPU) Close() {
	for _, s := range g.everyShare() {
		s.end()
	}
}
