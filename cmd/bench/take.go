package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/umbra-gpu/umbra/devmodel/guest"
)

// testCase is one point of a scenario.
type testCase struct {
	name    string // part of a benchmark's name, such as "size=4KiB/engine=CE0"
	shape   shape
	virtual bool // it cannot run with a whole card
	// prepare makes what all rounds with one server use, and is not measured; nil makes nothing.
	prepare func(t *take) any
	// run does the case once.
	run func(t *take)
}

// takes reports whether the case is measured with a set-up.
func (c *testCase) takes(s *setup) bool { return !s.whole || !c.virtual }

// failure ends what caught calls, as Fatal ends a test.
type failure struct{ error }

func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

func get[T any](v T, err error) T {
	must(err)
	return v
}

// caught returns the failure that ends do.
func caught(do func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	do()
	return nil
}

// errSkip ends a case that does not exist with the set-up.
var errSkip = errors.New("this case does not exist with this set-up")

// take is one repetition of a case with one set-up.
type take struct {
	ctx    context.Context
	server *server
	state  any // of prepare
	guests []io.Closer

	phases  []string // in order
	took    map[string]time.Duration
	counts  map[string]float64
	main    []benchfmt.Value // of per
	metrics []benchfmt.Value
}

// attach attaches a driver in this process, which leaves at the end of the take. It maps the windows
// that the device offers, as QEMU does, or posts its writes if there are none.
func (t *take) attach(gpu int, ram uint64) *guest.Guest {
	e := t.server.endpoints[gpu]
	g := get(guest.Attach(t.ctx, e.socket, guest.Config{RAM: ram, Map: e.mapped, Timeout: patience}))
	t.guests = append(t.guests, g)
	settle(g)
	return g
}

func (t *take) close() (err error) {
	for _, g := range t.guests {
		err = errors.Join(err, g.Close())
	}
	return err
}

// phase measures do: its time, and the counters meanwhile. What do starts must have ended when it
// returns. Phases of the same name add up.
func (t *take) phase(name string, do func()) (took time.Duration) {
	before := t.server.counts()
	at := time.Now()
	do()
	took = time.Since(at)
	if t.took == nil {
		t.took, t.counts = map[string]time.Duration{}, map[string]float64{}
	}
	if !slices.Contains(t.phases, name) {
		t.phases = append(t.phases, name)
	}
	t.took[name] += took
	for unit, n := range t.server.counts() {
		t.counts[unit] += n - before[unit]
	}
	return took
}

// metric adds another measured number.
func (t *take) metric(unit string, value float64) {
	t.metrics = append(t.metrics, benchfmt.Value{Unit: unit, Value: value})
}

// per ends the part of the case that its time and counters are of, and divides them by n. Phases
// that follow serve metrics only.
func (t *take) per(n int) {
	var all time.Duration
	for _, d := range t.took {
		all += d
	}
	t.main = []benchfmt.Value{{Unit: "ns/op", Value: float64(all)}, {Unit: unitTraps, Value: t.counts[unitTraps]}}
	for _, p := range t.phases {
		if len(t.phases) > 1 {
			t.main = append(t.main, benchfmt.Value{Unit: p + "-ns/op", Value: float64(t.took[p])})
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(t.counts)) {
		if unit != unitTraps {
			t.main = append(t.main, benchfmt.Value{Unit: unit, Value: t.counts[unit]})
		}
	}
	for i := range t.main {
		t.main[i].Value /= float64(n)
	}
}

// perTimed is per with another time than that of the phases.
func (t *take) perTimed(n int, ns float64) {
	t.per(n)
	t.main[0].Value = ns
}

// values returns what was measured.
func (t *take) values() []benchfmt.Value {
	if t.main == nil {
		t.per(1)
	}
	return append(t.main, t.metrics...)
}

// measure runs a case with each set-up by turns and hands each repetition to add, so that other work
// on the machine hits all set-ups alike. Each round begins with another set-up, so that none always
// follows the slowest.
func (c *testCase) measure(ctx context.Context, rounds int, setups []setup, add func(s *setup, values []benchfmt.Value)) (err error) {
	var prepared []*take
	defer func() {
		for _, t := range prepared {
			err = errors.Join(err, t.close(), t.server.close())
		}
	}()
	for i := range setups {
		if !c.takes(&setups[i]) {
			continue
		}
		s, err := open(&setups[i], c.shape)
		if err != nil {
			return err
		}
		t := &take{ctx: ctx, server: s}
		prepared = append(prepared, t)
		if c.prepare != nil {
			if err := caught(func() { t.state = c.prepare(t) }); err != nil {
				return fmt.Errorf("%s: %w", s.setup.name, err)
			}
		}
	}
	for round := range rounds {
		for i := range prepared {
			p := prepared[(i+round)%len(prepared)]
			t := &take{ctx: ctx, server: p.server, state: p.state}
			err := caught(func() {
				must(ctx.Err())
				if p.state == nil {
					p.server.waitFree(ctx) // the last round's guest may still be leaving
				}
				c.run(t)
			})
			if err = errors.Join(err, t.close()); err != nil && !errors.Is(err, errSkip) {
				return fmt.Errorf("%s: %w", p.server.setup.name, err)
			} else if err == nil {
				add(p.server.setup, t.values())
			}
		}
	}
	return nil
}
