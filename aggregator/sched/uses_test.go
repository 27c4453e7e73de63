package sched_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// parameters calls each with every parameter of a configuration, by its name.
func parameters(c *sched.Config, each func(name string, v reflect.Value)) {
	var walk func(at string, v reflect.Value)
	walk = func(at string, v reflect.Value) {
		for i := range v.NumField() {
			name := at + v.Type().Field(i).Tag.Get("json")
			if f := v.Field(i); f.Kind() == reflect.Struct {
				walk(name+".", f)
			} else {
				each(name, f)
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem())
}

// other gives a parameter another value, which may be.
func other(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[sched.Hierarchy]():
		v.Set(reflect.ValueOf(sched.Flat))
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Type() == reflect.TypeFor[time.Duration]() && v.Int() == 0:
		v.SetInt(int64(20 * ms))
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(v.Int() * 2)
	case v.Kind() == reflect.Int:
		v.SetInt(v.Int() + 3)
	}
}

// TestUnusedParameters: what is said to have no effect has none, decision by decision; and
// every parameter of a policy is asked about.
func TestUnusedParameters(t *testing.T) {
	trace := func(c sched.Config, shares ...sched.NodeConfig) (trace []string) {
		look := func(b *bed) {
			for _, f := range b.drain() {
				trace = append(trace, fmt.Sprint(b.now, f))
			}
		}
		b := newBed(t, c)
		b.lengths = func(ch sched.ID, i int) time.Duration { return time.Duration((int(ch)%3+1)*(i%5+1)) * 150 * us }
		for i := range 3 {
			var share sched.NodeConfig
			if i < len(shares) {
				share = shares[i]
			}
			g := b.node(t, sched.Card, share)
			for range 2 {
				b.channel(t, b.node(t, g, sched.NodeConfig{}), 0)
			}
		}
		for b.now < 400*ms {
			for i, ch := range b.channels {
				if have := b.submitted[ch] - b.done[ch]; have < 4 && int(b.now/(7*ms))%(i+2) != 0 {
					b.submit(ch, 4)
				}
				if c.Policy == sched.None {
					look(b) // nothing else comes at that moment
				}
			}
			look(b)
			b.step(b.now + ms)
		}
		return trace
	}
	for _, p := range all {
		c := sched.Default()
		c.Policy = p
		plain, unused := trace(c), 0
		parameters(&c, func(name string, v reflect.Value) {
			if name == "policy" || strings.HasPrefix(name, "watchdog.") || strings.HasPrefix(name, "limits.") {
				return
			}
			was := reflect.New(v.Type()).Elem()
			was.Set(v)
			other(v)
			require.NoError(t, c.Check(), name)
			switch by := sched.UsedBy(name); {
			case !slices.Contains(by, p) && name != "credit.period": // which is of caps, too
				unused++
				require.NotEmpty(t, by, "of nobody: %s", name)
				require.Equal(t, plain, trace(c), "%v: %s has an effect", p, name)
			case strings.HasPrefix(name, p.String()+"."), name == "credit.period":
			case name == "depth", name == "ahead", name == "hierarchy":
			default:
				require.Fail(t, "nobody is told that it has no effect", "%v: %s", p, name)
			}
			v.Set(was)
		})
		require.GreaterOrEqual(t, unused, 8, "%v", p)
		for field, n := range map[string]sched.NodeConfig{"weight": {Weight: 700}, "priority": {Priority: 2}, "policy": {Policy: sched.FIFO}} {
			switch used := slices.Contains(sched.UsedBelow(field), p); {
			case !used:
				require.Equal(t, plain, trace(c, n), "%v: %s has an effect", p, field)
			case field != "policy": // which may be what there is anyway
				require.NotEqual(t, plain, trace(c, n), "%v: %s has none", p, field)
			}
		}
	}
}
