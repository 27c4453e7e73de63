package bench

import (
	"context"
	"errors"
	"fmt"
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
	prepare func(s *server) any
	// run does the case once. If it measures no phase, the case does not exist with the set-up.
	run func(t *take)
}

// alone is a case in which a new guest attaches, does something and leaves.
func alone(name string, ram uint64, do func(t *take, g *guest.Guest)) testCase {
	return testCase{name: name, shape: common, run: func(t *take) { do(t, t.attach(0, ram)) }}
}

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

// take is one repetition of a case with one set-up.
type take struct {
	*server
	counts  map[string]float64 // of all phases: their time, and the server's counters meanwhile
	ops     int                // that times and counters are divided by
	each    float64            // nanoseconds of one; below 0: those of the phases
	metrics []benchfmt.Value
}

func newTake(s *server) *take {
	return &take{server: s, counts: map[string]float64{}, ops: 1, each: -1}
}

// phase measures do. What do starts must have ended when it returns. Phases of the same name add up;
// the only phase of a case needs no name.
func (t *take) phase(name string, do func()) (took time.Duration) {
	before := t.server.counts()
	at := time.Now()
	do()
	took = time.Since(at)
	t.counts[unitNS] += float64(took)
	if name != "" {
		t.counts[name+"-"+unitNS] += float64(took)
	}
	for unit, n := range t.server.counts() {
		t.counts[unit] += n - before[unit]
	}
	return took
}

// metric adds another measured number.
func (t *take) metric(unit string, value float64) {
	t.metrics = append(t.metrics, benchfmt.Value{Unit: unit, Value: value})
}

// quantiles adds the median and the 99th percentile of single times.
func (t *take) quantiles(name string, each []float64) {
	t.metric(name+"-p50-ns", median(each))
	t.metric(name+"-p99-ns", each[len(each)*99/100])
}

// values returns what was measured, time and traps first; nil if no phase was.
func (t *take) values() (out []benchfmt.Value) {
	if len(t.counts) == 0 {
		return nil
	}
	add := func(unit string) {
		out = append(out, benchfmt.Value{Unit: unit, Value: t.counts[unit] / float64(t.ops)})
		delete(t.counts, unit)
	}
	add(unitNS)
	add(unitTraps)
	if t.each >= 0 {
		out[0].Value = t.each
	}
	for _, unit := range slices.Sorted(maps.Keys(t.counts)) {
		add(unit)
	}
	return append(out, t.metrics...)
}

// measure runs a case with each set-up by turns and hands each repetition to add, so that other work
// on the machine hits all set-ups alike. Each round begins with another set-up, so that none always
// follows the slowest.
func (c *testCase) measure(ctx context.Context, rounds int, setups []setup, add func(s *setup, values []benchfmt.Value)) (err error) {
	var servers []*server
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.close())
		}
	}()
	for i := range setups {
		if !c.takes(&setups[i]) {
			continue
		}
		s, err := open(ctx, &setups[i], c.shape)
		if err != nil {
			return err
		}
		if servers = append(servers, s); c.prepare == nil {
			continue
		}
		if err := caught(func() { s.state = c.prepare(s) }); err != nil {
			return fmt.Errorf("%s: %w", s.setup.name, err)
		}
	}
	for round := range rounds {
		for i := range servers {
			s := servers[(i+round)%len(servers)]
			t := newTake(s)
			err := caught(func() {
				must(ctx.Err())
				c.run(t)
				if c.prepare == nil {
					must(s.leave())
				}
			})
			if err != nil {
				return fmt.Errorf("%s: %w", s.setup.name, err)
			}
			if values := t.values(); values != nil {
				add(s.setup, values)
			}
		}
	}
	return nil
}

// takes reports whether the case is measured with a set-up.
func (c *testCase) takes(s *setup) bool { return !s.whole || !c.virtual }
