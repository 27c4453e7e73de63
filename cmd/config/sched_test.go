package config

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// TestSchedule: every policy has its word, off is none at all, and what the options
// say by default is what the scheduler itself has.
func TestSchedule(t *testing.T) {
	l, err := join(t, "")
	require.NoError(t, err)
	s := l.Config.Schedule()
	c, err := s.Config()
	require.NoError(t, err)
	require.Nil(t, c)
	for _, policy := range sched.Policies() {
		want := sched.Default()
		require.NoError(t, want.Policy.UnmarshalText([]byte(policy)))
		l, err := join(t, "scheduler: {policy: "+policy+"}\n")
		require.NoError(t, err)
		s := l.Config.Schedule()
		c, err := s.Config()
		require.NoError(t, err)
		require.Equal(t, &want, c)
	}
	l, err = join(t, "scheduler: {policy: credit, depth: 64, credit: {period: 1s}, timeslice: {slice: 100us}}\nlimits: {request: 0s}\n")
	require.NoError(t, err)
	want := sched.Default()
	want.Depth, want.Credit.Period, want.Timeslice.Slice, want.Watchdog.Limit = 64, time.Second, 100*time.Microsecond, 0
	s = l.Config.Schedule()
	c, err = s.Config()
	require.NoError(t, err)
	require.Equal(t, &want, c)
}

// TestSchedulerAuto: who shares the card, or may come to share it because GPUs can be
// added, is scheduled, if nothing else is said.
func TestSchedulerAuto(t *testing.T) {
	const a, b = "name=a,socket=a.sock,vram=64MiB", "name=b,socket=b.sock,vram=64MiB"
	for _, c := range []struct {
		file string
		gpus []string
		want string
	}{
		{"", nil, "off"}, {"socket: s.sock\n", nil, "off"}, {"control: c.sock\n", nil, "credit"}, {"socket: s.sock\ncontrol: c.sock\n", nil, "off"},
		{"", []string{a}, "off"}, {"control: c.sock\n", []string{a}, "credit"}, {"", []string{a, b}, "credit"},
		{"scheduler: {policy: off}\n", []string{a, b}, "off"}, {"scheduler: {policy: auto}\n", []string{a, b}, "credit"}, {"scheduler: {policy: band}\n", []string{a}, "band"},
	} {
		l, err := join(t, c.file, c.gpus...)
		require.NoError(t, err)
		require.Equal(t, c.want, l.Config.Scheduler.Policy, "%q %v", c.file, c.gpus)
	}
	_, err := join(t, "", a+",weight=3", b)
	require.NoError(t, err)
}

// leaves calls f with each number, word and truth value in a structure.
func leaves(path string, v reflect.Value, f func(path string, v reflect.Value)) {
	if v.Kind() != reflect.Struct {
		f(path, v)
		return
	}
	for i := range v.NumField() {
		leaves(path+"."+v.Type().Field(i).Name, v.Field(i), f)
	}
}

// TestScheduleReachesEverything: there is an option for each of the scheduler's own
// parameters, and it goes there and back. A GPU's channels are bounded by its own
// option for them.
func TestScheduleReachesEverything(t *testing.T) {
	c := sched.Default()
	leaves("", reflect.ValueOf(&c).Elem(), func(path string, v reflect.Value) {
		before, was := ScheduleOf(&c), v.Interface()
		switch p := v.Addr().Interface().(type) {
		case *bool:
			*p = !*p
		case *int:
			*p++
		case *time.Duration:
			*p += time.Millisecond
		case *sched.Policy:
			*p = sched.Band
		default:
			t.Fatalf("%s has type %T", path, p)
		}
		after := ScheduleOf(&c)
		if path == ".Limits.Channels" || path == ".Ahead" {
			require.Equal(t, before, after)
			v.Set(reflect.ValueOf(was))
			return
		}
		require.NotEqual(t, before, after, "no option for %s", path)
		changed := 0
		for key, value := range after.Values() {
			if value != before.Values()[key] {
				changed++
			}
		}
		require.Equal(t, 1, changed, "options for %s", path)
		back, err := after.Config()
		require.NoError(t, err)
		require.Equal(t, &c, back, path)
	})
}

// TestScheduleChange: any values in their bounds that are written are the ones that the
// scheduler takes, and one out of its bounds changes nothing.
func TestScheduleChange(t *testing.T) {
	first := Defaults()
	first.Config.Scheduler.Policy = "credit"
	rapid.Check(t, func(t *rapid.T) {
		s := first.Config.Schedule()
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			key := rapid.SampledFrom(s.Keys()).Draw(t, "key")
			text, want := "", any(nil)
			for _, o := range options(&s) {
				if o.path != key {
					continue
				}
				least, _ := o.limit("min")
				most, _ := o.limit("max")
				n := rapid.Uint64Range(least, most).Draw(t, "value")
				switch v := o.value.Interface().(type) {
				case time.Duration:
					want = time.Duration(n)
				case int:
					want = int(n)
				case bool:
					want = !v
				case string:
					want = rapid.SampledFrom(sched.Policies()).Draw(t, "word")
				}
				text = fmt.Sprintf("%s=%v", key, want)
				if _, isBool := want.(bool); !isBool && o.value.Kind() != reflect.String {
					for _, wrong := range []string{"-1", "99999999999999", "-1ns", "99999h", "x", ""} {
						after, err := s.Change(text + ",depth=" + "3," + "x=" + wrong)
						require.ErrorContains(t, err, "scheduler: ")
						require.Equal(t, s, after)
						if key != "depth" {
							after, err = s.Change("depth=3," + key + "=" + wrong)
							require.ErrorContains(t, err, "scheduler: "+key+": ")
							require.Equal(t, s, after, "half of it was done")
						}
					}
				}
			}
			changed, err := s.Change(text)
			require.NoError(t, err)
			require.Equal(t, want, changed.Values()[key])
			c, err := changed.Config()
			require.NoError(t, err, "bounds of the option are wider than the scheduler's")
			require.Equal(t, changed, ScheduleOf(c))
			s = changed
		}
	})
	s := first.Config.Schedule()
	for _, c := range []struct{ text, want string }{
		{"policy=fair", `scheduler: policy: fair: there are none, fifo, credit, band, timeslice, dfq`},
		{"policy=bandit", `scheduler: policy: bandit: did you mean "band"? There are none, fifo, credit, band, timeslice, dfq`},
		{"limits.table-rate=1MiB", `scheduler: limits.table-rate: is for the start, no option of the scheduler's; these can be changed: band.grace, `},
		{"weight=3", `scheduler: weight: is a GPU's; umbra gpu set changes it for one`},
		{"credit.period=30", `scheduler: credit.period: "30" is not a time, it has no unit; write 30ms; it must be 1ms to 1s`},
		{"scheduler.depth=1,depth=2", `: depth is there twice`},
		{"scheduler.policy=off", `scheduler: policy: off: cannot be turned off while the server runs`},
		{"policy=auto", `scheduler: policy: auto: is for the start; name a policy: none, fifo, credit, band, timeslice, dfq`},
		{"policy=off", `scheduler: policy: off: cannot be turned off while the server runs; none gives work to the card as it comes and keeps the accounts`},
		{"credit.period=2s", `scheduler: credit.period: 2s: must be 1ms to 1s`},
		{"depth=0", `scheduler: depth: 0: must be 1 to 64`},
		{"limits.request=2h", `scheduler: limits.request: 2h: must be 0s to 1h`},
		{"credit.perod=2ms", `scheduler: credit.perod: unknown key; did you mean "credit.period"? There are `},
		{"depth=1,depth=2", `scheduler: depth=1,depth=2: depth is there twice`},
		{"depth=", `scheduler: depth: has no value; give one or leave it out`},
		{"credit", `scheduler: credit: not keys and values; write credit.period=10ms`},
		{"dfq.model=perhaps", `scheduler: dfq.model: "perhaps" is neither true nor false`},
	} {
		after, err := s.Change(c.text)
		require.ErrorContains(t, err, c.want)
		require.IsType(t, new(Error), err)
		require.Equal(t, s, after)
	}
}

// TestCardTime: what is said of a GPU's part of the card's time is what the
// scheduler is told, and back.
func TestCardTime(t *testing.T) {
	space := Processes{Group: "space"}
	for _, c := range []struct {
		of   CardTime
		node sched.NodeConfig
		by   aggregator.Grouping
	}{
		{CardTime{Weight: 1, Processes: space}, sched.NodeConfig{Weight: 1}, aggregator.BySpace},
		{CardTime{Weight: 100, Cap: 1, Processes: space}, sched.NodeConfig{Weight: 100, Cap: 10}, aggregator.BySpace},
		{CardTime{10000, 100, 7, GuestLimits{RequestLimit(time.Second), 5}, space}, sched.NodeConfig{Weight: 10000, Cap: 1000, Priority: 7, Limit: time.Second, Queued: 5}, aggregator.BySpace},
		{CardTime{Weight: 1, Limits: GuestLimits{Request: RequestLimit(sched.Forever)}, Processes: Processes{"channel"}}, sched.NodeConfig{Weight: 1, Limit: sched.Forever}, aggregator.ByChannel},
		{CardTime{Weight: 1, Processes: Processes{"guest"}}, sched.NodeConfig{Weight: 1}, aggregator.ByGuest},
	} {
		require.Equal(t, c.node, c.of.Node())
		require.Equal(t, c.by, c.of.Grouping())
		require.Equal(t, c.of, CardTimeOf(c.of.Node(), c.of.Grouping()))
	}
	l, err := join(t, "scheduler: {policy: fifo}\n", "name=a,socket=a.sock,vram=64MiB,weight=7,cap=25,priority=2,limits.request=0s,processes.group=guest")
	require.NoError(t, err)
	g, err := l.Change(l.Config.GPUs[0], "weight=9,limits.queued=4")
	require.NoError(t, err)
	require.Equal(t, CardTime{9, 25, 2, GuestLimits{RequestLimit(sched.Forever), 4}, Processes{"guest"}}, g.CardTime)
	g, err = l.Change(g, "limits.request=inherit")
	require.NoError(t, err)
	require.Equal(t, GuestLimits{0, 4}, g.Limits)
	require.Equal(t, "0s inherit 2s", fmt.Sprint(RequestLimit(sched.Forever), RequestLimit(0), RequestLimit(2*time.Second)))
}

func TestSchedulerErrors(t *testing.T) {
	const on, gpu = "scheduler: {policy: credit}\n", "gpus:\n- {name: a, socket: a.sock, vram: 64MiB, "
	for _, c := range []struct{ file, want string }{
		{"scheduler: {policy: fair}\n", `f.yaml:1: scheduler.policy: fair: must be auto or off or none or fifo or credit or band or timeslice or dfq`},
		{"scheduler: {depth: 0}\n", `f.yaml:1: scheduler.depth: 0: must be 1 to 64`},
		{"scheduler: {depth: 65}\n", `f.yaml:1: scheduler.depth: 65: must be 1 to 64`},
		{"scheduler: {credit: {period: 999us}}\n", `f.yaml:1: scheduler.credit.period: 999us: must be 1ms to 1s`},
		{"scheduler: {timeslice: {slice: 2s}}\n", `f.yaml:1: scheduler.timeslice.slice: 2s: must be 100us to 1s`},
		{"scheduler: {polic: dfq}\n", `f.yaml:1: scheduler.polic: unknown key; did you mean "policy"? There are policy, depth, credit, band, timeslice, dfq, watchdog`},
		{"scheduler: {dfq: {freerun: 1s}}\n", `f.yaml:1: scheduler.dfq.freerun: unknown key; did you mean "free-run"? There are slice, factor, free-run, model`},
		{"scheduler: {policy: dfq, policy: band}\n", `f.yaml:1: mapping key "policy" already defined at [1:13]`},
		{on + "limits: {request: 61m}\n", `f.yaml:2: limits.request: 61m: must be 0s to 1h`},
		{on + "limits: {request: -1s}\n", `f.yaml:2: limits.request: -1s: must be 0s to 1h`},
		{on + gpu + "weight: 0}\n", `f.yaml:3: gpus[0].weight: 0: must be 1 to 10000`},
		{on + gpu + "weight: 10001}\n", `f.yaml:3: gpus[0].weight: 10001: must be 1 to 10000`},
		{on + gpu + "weight: heavy}\n", `f.yaml:3: gpus[0].weight: "heavy" is not a whole number; it must be 1 to 10000`},
		{on + gpu + "cap: 101}\n", `f.yaml:3: gpus[0].cap: 101: must be 0 to 100`},
		{on + gpu + "cap: -1}\n", `f.yaml:3: gpus[0].cap: -1: must be 0 to 100`},
		{on + gpu + "priority: 8}\n", `f.yaml:3: gpus[0].priority: 8: must be 0 to 7`},
		{on + gpu + "limits: {request: 2h}}\n", `f.yaml:3: gpus[0].limits.request: 2h: must be 0s to 1h, or inherit`},
		{on + gpu + "limits: {request: soon}}\n", `f.yaml:3: gpus[0].limits.request: "soon" is not a time; write a number and a unit: 500us, 30ms, 10s; 0s is for ever, and inherit is what the server's limits.request says`},
		{on + gpu + "limits: {queued: -1}}\n", `f.yaml:3: gpus[0].limits.queued: -1: must be 0 to 1073741824`},
		{on + gpu + "processes: {group: user}}\n", `f.yaml:3: gpus[0].processes.group: user: must be space or channel or guest`},
		{on + "profiles: [{name: p, weight: 10001}]\n", `f.yaml:2: profiles[0].weight: 10001: must be 1 to 10000`},
	} {
		_, err := join(t, c.file)
		require.EqualError(t, err, c.want, "%s", c.file)
		require.IsType(t, new(Error), err)
	}
}
