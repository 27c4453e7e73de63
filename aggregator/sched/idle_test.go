package sched_test

import (
	"fmt"
	"reflect"
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

// TestIdleParameters: what is said to have no effect has none, decision by decision; and
// every parameter of a policy is asked about.
func TestIdleParameters(t *testing.T) {
	trace := func(c sched.Config, shares ...sched.NodeConfig) (trace []string) {
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
			}
			for _, f := range b.drain() {
				trace = append(trace, fmt.Sprint(b.now, f))
			}
			b.step(b.now + ms)
		}
		return trace
	}
	for _, p := range all {
		c := sched.Default()
		c.Policy = p
		require.Empty(t, c.Idle(), "what nobody asked for")
		plain, idle := trace(c), 0
		parameters(&c, func(name string, v reflect.Value) {
			if name == "policy" || name == "hierarchy" || strings.HasPrefix(name, "watchdog.") || strings.HasPrefix(name, "limits.") {
				return
			}
			was := reflect.New(v.Type()).Elem()
			was.Set(v)
			other(v)
			require.NoError(t, c.Check(), name)
			switch said := c.Idle(); {
			case len(said) > 0:
				idle++
				require.Len(t, said, 1)
				require.Equal(t, name, said[0].Field)
				require.Contains(t, said[0].Error(), fmt.Sprintf("has no effect with policy %v; it is for ", p))
				require.Equal(t, plain, trace(c), "%v: %s has an effect", p, name)
			case strings.HasPrefix(name, p.String()+"."), name == "credit.period": // its own; and that of caps
			case name == "depth" && p != sched.None, name == "ahead":
				require.Contains(t, []sched.Policy{sched.FIFO, sched.Credit, sched.Band, sched.Timeslice, sched.DFQ}, p, name)
			default:
				require.Fail(t, "nobody is told that it has no effect", "%v: %s", p, name)
			}
			v.Set(was)
		})
		require.GreaterOrEqual(t, idle, 8, "%v", p)
		for _, n := range []sched.NodeConfig{{Weight: 700}, {Priority: 2}, {Policy: sched.FIFO}} {
			if said := n.IdleIn(p); len(said) > 0 {
				require.Equal(t, plain, trace(c, n), "%v: %v has an effect", p, said)
			} else if n.Policy == sched.Inherit {
				require.NotEqual(t, plain, trace(c, n), "%v: %+v has none", p, n)
			}
		}
	}
	c := sched.Default()
	c.Timeslice.Slice = ms
	require.EqualError(t, c.Idle()[0], "timeslice.slice: 1ms: has no effect with policy credit; it is for timeslice")
	require.Empty(t, c.Idle(sched.Timeslice), "a node has it")
	n := sched.NodeConfig{Weight: 300}
	require.EqualError(t, n.IdleIn(sched.None)[0], "weight: 300: has no effect below policy none; it is for credit, band, timeslice or dfq")
	require.Empty(t, n.IdleIn(sched.Credit))
}
