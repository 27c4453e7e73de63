package simulate

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

func load(d time.Duration) *throttle.Load { return &throttle.Load{Busy: d} }

func leaf(name string, l *throttle.Load) model.Node { return model.Node{Name: name, Load: l} }

func mix(guests ...model.Node) model.Mix { return model.Mix{Guests: guests} }

// A Preset is an experiment that can be named.
type Preset struct {
	Name, About string
	Mix         model.Mix
	Sweep       *Sweep
}

// program is a victim with two seconds of work.
func program(length time.Duration) *throttle.Load {
	return &throttle.Load{Busy: length, Requests: int(2 * time.Second / length)}
}

// lengths of a competitor's requests, in milliseconds.
var lengths = []float64{0.1, 0.2, 0.4, 0.7, 1, 2, 3, 5, 7, 10}

func millis(v float64) time.Duration { return time.Duration(v * float64(ms)) }

// Presets are the experiments of the published work on fair shares, and of the
// tests.
func Presets() []Preset {
	victim := 2699 * us
	return []Preset{
		{Name: "nn", About: "Requests of 4171 us against 100 us: the card by itself gives the first 97.7 %.",
			Mix: mix(leaf("nn", load(4171*us)), leaf("throttle", load(100*us)))},
		{Name: "base", About: "F-base: a program's runtime against the length of another guest's requests.",
			Sweep: &Sweep{"length of the other's requests, ms", lengths, func(at float64) model.Mix {
				return mix(leaf("program", program(victim)), leaf("throttle", load(millis(at))))
			}}},
		{Name: "in", About: "F-in: the same, both in one guest.",
			Sweep: &Sweep{"length of the other's requests, ms", lengths, func(at float64) model.Mix {
				return mix(model.Node{Name: "guest", Nodes: []model.Node{leaf("program", program(victim)), leaf("throttle", load(millis(at)))}})
			}}},
		{Name: "between", About: "F-between: a guest with a program against a guest with more and more processes.",
			Sweep: &Sweep{"processes of the other guest", []float64{1, 2, 3, 4, 5, 6, 7, 8, 16, 32}, func(at float64) model.Mix {
				return mix(leaf("program", program(ms)), model.Node{Name: "many", Nodes: []model.Node{{Name: "p", Count: int(at), Load: load(ms)}}})
			}}},
		{Name: "weights", About: "Three guests, weights 1 to 2 to 4, requests of different lengths.",
			Mix: mix(model.Node{Name: "one", Weight: 100, Load: load(700 * us)}, model.Node{Name: "two", Weight: 200, Load: load(3 * ms)}, model.Node{Name: "four", Weight: 400, Load: load(300 * us)})},
		{Name: "long", About: "Requests of 60 ms, longer than credit's period, against 100 us.",
			Mix: mix(leaf("long", load(60*ms)), leaf("short", load(100*us)))},
		{Name: "gaps", About: "Short requests with short pauses against long ones: what band is for.",
			Mix: mix(leaf("gaps", &throttle.Load{Busy: 100 * us, Think: 200 * us}), leaf("full", load(4*ms)))},
		{Name: "tree", About: "Three levels: guests, groups, processes; some have nothing to do.",
			Mix: mix(leaf("single", load(ms)), model.Node{Name: "team", Nodes: []model.Node{
				{Name: "build", Nodes: []model.Node{{Name: "job", Count: 3, Load: load(2 * ms)}}},
				leaf("desktop", &throttle.Load{Busy: 300 * us, Think: 16 * ms}),
				leaf("idle", &throttle.Load{Busy: ms, Start: time.Hour}),
			}})},
		{Name: "cheat", About: "Short requests while the card is its own, long ones otherwise. Try --set dfq.model=true.",
			Mix: mix(leaf("cheat", &throttle.Load{Busy: 4 * ms, Alone: 100 * us}), leaf("honest", load(ms)))},
		{Name: "churn", About: "A process that ends and begins anew every 20 ms.",
			Mix: mix(model.Node{Name: "guest", Nodes: []model.Node{leaf("churn", &throttle.Load{Busy: 4171 * us, Life: 20 * ms}), leaf("stays", load(100*us))}})},
		{Name: "merged", About: "A guest that fuses fifty requests into one.",
			Mix: mix(leaf("merged", load(10*ms)), leaf("honest", load(200*us)))},
		{Name: "rare", About: "A program that hardly uses the card, against one that would fill it: latency.",
			Mix: mix(leaf("rare", &throttle.Load{Busy: 250 * us, Think: 25 * ms}), leaf("full", load(ms)))},
		{Name: "copies", About: "Copies beside computing: each engine is shared by itself.",
			Mix: mix(leaf("copies", &throttle.Load{Busy: ms, Copies: 1000, CopyBusy: 2 * ms}), leaf("both", &throttle.Load{Busy: ms, Copies: 500, CopyBusy: 300 * us, Ahead: 32}), leaf("computes", load(3*ms)))},
		{Name: "cap", About: "A guest that may have a fifth of the card, and two that share the rest.",
			Mix: mix(model.Node{Name: "capped", Cap: 200, Load: load(ms)}, leaf("a", load(ms)), leaf("b", load(2*ms)))},
	}
}
