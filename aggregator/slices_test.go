package aggregator

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// slicedGPU shares its engines by itself. Its meter has what the test says, for channels that are bound.
type slicedGPU struct {
	card.GPU
	mu      sync.Mutex
	busy    map[uint32]*card.Use
	weights map[card.Share]float64
	freeing func()
}

func (s *slicedGPU) Slices() card.Slices                      { return s }
func (s *slicedGPU) Meter() card.Meter                        { return s }
func (s *slicedGPU) OnUse(func())                             {}
func (s *slicedGPU) SetWeight(sh card.Share, w float64) error { s.weights[sh] = w; return nil }
func (s *slicedGPU) locked(f func())                          { s.mu.Lock(); defer s.mu.Unlock(); f() }
func (s *slicedGPU) Use(id uint32) (u card.Use)               { s.locked(func() { u = *s.busy[id] }); return u }
func (s *slicedGPU) work(id uint32, e card.Engine, d time.Duration) {
	s.locked(func() { s.busy[id].Busy[e] += d })
}

func (s *slicedGPU) NewShare(c card.ShareConfig) (card.Share, error) {
	sh, err := s.GPU.NewShare(c)
	return &slicedShare{sh, s}, err
}

type slicedShare struct {
	card.Share
	gpu *slicedGPU
}

func (s *slicedShare) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	ch, err := s.Share.NewChannel(c, ev)
	if err != nil {
		return nil, err
	}
	s.gpu.locked(func() { s.gpu.busy[ch.ID()] = new(card.Use) })
	return slicedChannel{ch, s.gpu}, nil
}

type slicedChannel struct {
	card.Channel
	gpu *slicedGPU
}

func (c slicedChannel) Unbind() {
	c.Channel.Unbind()
	c.gpu.locked(func() { c.gpu.busy[c.ID()] = &card.Use{Busy: [card.MaxEngines]time.Duration{1 << 60}} }) // another's
}

func (c slicedChannel) Free() {
	c.gpu.freeing() // while it is neither bound nor free
	c.Channel.Free()
}

// TestSlices: a card that shares its engines by itself gets the guests' weights. The ledger has what each
// guest used, its channels of the past included, and the card's account that of guests of the past.
func TestSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		below, err := driver.New(fakecard.New(fakeVRAM), driver.Options{Timeout: patience})
		require.NoError(t, err)
		s := &slicedGPU{GPU: below, busy: make(map[uint32]*card.Use), weights: make(map[card.Share]float64)}
		_, err = New(s, Options{Scheduler: new(sched.Config)})
		require.ErrorContains(t, err, "scheduler.policy")
		a, err := New(s, Options{})
		require.NoError(t, err)
		_, err = addFace(a, GuestConfig{Name: "capped", VRAM: 4 << 20, Tables: 1 << 20, Share: sched.NodeConfig{Cap: 1}}, newRecorder())
		require.ErrorContains(t, err, "cap: ")
		type twin struct {
			g      *Guest
			weight int
			busy   time.Duration
		}
		var guests []*twin
		total, made := time.Duration(0), 0
		sum := func(e sched.Entry) (d time.Duration) {
			for _, a := range e.Accounts {
				d += a.Busy
			}
			return d
		}
		wrong := false
		s.freeing = func() { wrong = wrong || sum(a.Ledger()[0]) != total }
		one := func(t *rapid.T) *twin {
			if len(guests) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(guests).Draw(t, "guest")
		}
		id := func(t *rapid.T) uint8 { return uint8(rapid.IntRange(0, 2).Draw(t, "channel")) }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if made++; len(guests) < 4 {
					w := rapid.SampledFrom([]int{0, 1, 300}).Draw(t, "weight")
					g, _ := addGuestIn(t, a, GuestConfig{Name: fmt.Sprint(made), VRAM: 4 << 20, Tables: 1 << 20, Share: sched.NodeConfig{Weight: w}})
					guests = append(guests, &twin{g, w, 0})
				}
			},
			"bind": func(t *rapid.T) { bindChannel(t, one(t).g, id(t)) },
			"unbind": func(t *rapid.T) {
				g := one(t).g
				bindAt(g, id(t), 0)
				settle(g)
			},
			"work": func(t *rapid.T) {
				w, e := one(t), card.Engine(rapid.IntRange(0, a.gpu.Engines()-1).Draw(t, "engine"))
				if ch := w.g.cardChannel(id(t)); ch != nil {
					d := time.Duration(rapid.IntRange(1, 1e6).Draw(t, "time"))
					s.work(ch.Card().ID(), e, d)
					w.busy, total = w.busy+d, total+d
				}
			},
			"weigh": func(t *rapid.T) {
				w := one(t)
				w.weight = rapid.IntRange(1, 1000).Draw(t, "weight")
				require.NoError(t, w.g.SetShare(sched.NodeConfig{Weight: w.weight}))
				for key, c := range map[string]sched.NodeConfig{"cap": {Cap: 5}, "priority": {Priority: 1}, "limits.request": {Limit: 1}, "limits.queued": {Queued: 1}} {
					require.ErrorContains(t, w.g.SetShare(c), key+": ")
				}
			},
			"remove": func(t *rapid.T) {
				w := one(t)
				require.NoError(t, w.g.Remove())
				guests = slices.DeleteFunc(guests, func(o *twin) bool { return o == w })
			},
			"": func(t *rapid.T) {
				ledger := a.Ledger()
				require.Len(t, ledger, 1+len(guests))
				require.Equal(t, total, sum(ledger[0]))
				require.False(t, wrong, "a channel that is not bound any more")
				for _, w := range guests {
					want := cmp.Or(w.weight, sched.BaseWeight)
					require.InDelta(t, float64(want)/100, s.weights[w.g.share], 1e-9)
					for _, e := range ledger[1:] {
						if e.Name == w.g.Name() {
							require.Equal(t, w.busy, sum(e))
							require.Equal(t, want, e.Weight)
						}
					}
				}
			},
		})
		for _, w := range guests {
			require.NoError(t, w.g.Remove())
		}
		require.NoError(t, a.Close())
	})
}
