package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// TestWarnings: what has no effect is named, with its value and why; what has one, or
// says what is so anyway, is not.
func TestWarnings(t *testing.T) {
	const (
		on   = "scheduler: {policy: credit}\n"
		gpu  = "gpus:\n- {name: a, socket: a.sock, vram: 64MiB, "
		off  = `has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit, or leave it out`
		slow = `is slow with bar-map: none: QEMU waits for every write of the guest as soon as anything is mapped, and the doorbells are; ` +
			`work took a guest about four times as long as with trap; set bar-map to all, or doorbell to trap`
	)
	policy := func(policy, more string) string { return "scheduler: {policy: " + policy + ", " + more + "}\n" }
	for _, c := range []struct {
		file  string
		want  []string
		alone bool
	}{
		// Without a scheduler.
		{file: "scheduler: {depth: 2}\n" + gpu + "}\n", want: []string{`f.yaml:1: scheduler.depth: 2: ` + off}},
		{file: "scheduler: {depth: 1}\n" + gpu + "}\n"},
		{file: "limits: {queued: 2}\n" + gpu + "}\n", want: []string{`f.yaml:1: limits.queued: 2: ` + off}},
		{file: "limits: {request: 2s}\n" + gpu + "}\n", want: []string{`f.yaml:1: limits.request: 2s: ` + off}},
		{file: "limits: {request: 0s}\n" + gpu + "}\n"},
		{file: gpu + "weight: 200, cap: 20%}\n", want: []string{`f.yaml:2: gpus[0].weight: 200: ` + off, `f.yaml:2: gpus[0].cap: 20: ` + off}},
		{file: gpu + "priority: 0, weight: 100}\n"},
		{file: gpu + "limits: {request: 1s}}\n", want: []string{`f.yaml:2: gpus[0].limits.request: 1s: ` + off}},
		{file: gpu + "processes: {policy: off}}\n", want: []string{`f.yaml:2: gpus[0].processes.policy: off: ` + off}},
		{file: "profiles: [{name: p, weight: 9}]\n" + gpu + "profile: p}\n", want: []string{`f.yaml:1: profiles[0].weight: 9: ` + off}},
		// Of another policy than the one in force.
		{file: policy("credit", "timeslice: {slice: 10ms}") + gpu + "}\n", want: []string{`f.yaml:1: scheduler.timeslice.slice: 10ms: has no effect while the policy is credit; it is for timeslice`}},
		{file: policy("timeslice", "timeslice: {slice: 10ms}") + gpu + "}\n"},
		{file: policy("timeslice", "ahead: 1ms, timeslice: {grace: 1ms, work-conserving: false}") + gpu + "}\n", want: []string{
			`f.yaml:1: scheduler.ahead: 1ms: has no effect while the policy is timeslice; it is for fifo, credit, band`,
			`f.yaml:1: scheduler.timeslice.grace: 1ms: has no effect: timeslice.work-conserving is false`,
		}},
		{file: policy("timeslice", "depth: 3, timeslice: {disengaged: true}") + gpu + "}\n", want: []string{`f.yaml:1: scheduler.depth: 3: has no effect: timeslice.disengaged gives the card all work of whose turn it is`}},
		{file: policy("fifo", "credit: {period: 10ms}") + gpu + "}\n", want: []string{`f.yaml:1: scheduler.credit.period: 10ms: has no effect while the policy is fifo; it is for credit, band`}},
		{file: policy("fifo", "credit: {period: 10ms}") + gpu + "cap: 50}\n"},
		{file: policy("none", "hierarchy: flat, depth: 2") + gpu + "weight: 3, priority: 2, cap: 9}\n", want: []string{
			`f.yaml:1: scheduler.hierarchy: flat: has no effect while the policy is none; it is for fifo, credit, band, timeslice, dfq`,
			`f.yaml:1: scheduler.depth: 2: has no effect while the policy is none; it is for fifo, credit, band, timeslice, dfq`,
			`f.yaml:3: gpus[0].weight: 3: has no effect while scheduler.policy is none`,
			`f.yaml:3: gpus[0].priority: 2: has no effect while scheduler.policy is none`,
		}},
		{file: policy("credit", "hierarchy: flat") + gpu + "weight: 3}\n", want: []string{`f.yaml:3: gpus[0].weight: 3: has no effect while scheduler.hierarchy is flat: processes compete by weights of their own`}},
		{file: policy("dfq", "dfq: {factor: 3, free-run: 1s}") + gpu + "processes: {policy: off}}\n", want: []string{
			`f.yaml:1: scheduler.dfq.factor: 3: has no effect: dfq.free-run says how long a free run is`,
			`f.yaml:3: gpus[0].processes.policy: off: has no effect while scheduler.policy is dfq`,
		}},
		{file: policy("band", "band: {grace: 0s, chances: 3}") + gpu + "}\n", want: []string{`f.yaml:1: scheduler.band.chances: 3: has no effect: band.grace is 0s`}},
		{file: policy("band", "band: {grace: 1ms, chances: 0}") + gpu + "}\n", want: []string{`f.yaml:1: scheduler.band.grace: 1ms: has no effect: band.chances is 0`}},
		{file: policy("band", "watchdog: {grace: 2s}") + "limits: {request: 0s}\n" + gpu + "}\n", want: []string{`f.yaml:1: scheduler.watchdog.grace: 2s: has no effect: requests have no limit (limits.request)`}},
		{file: policy("band", "watchdog: {grace: 2s}") + "limits: {request: 0s}\n" + gpu + "limits: {request: 1s}}\n"},
		{file: policy("band", "watchdog: {offences: 0, within: 2s}") + gpu + "}\n", want: []string{`f.yaml:1: scheduler.watchdog.within: 2s: has no effect: watchdog.offences is 0`}},
		// A guest's processes.
		{file: on + gpu + "processes: {policy: weighted}}\n", want: []string{`f.yaml:3: gpus[0].processes.policy: weighted: has no effect without processes.weights: all weigh the same, as with equal`}},
		{file: on + gpu + "processes: {weights: \"kernel:9\"}}\n", want: []string{`f.yaml:3: gpus[0].processes.weights: kernel:9: has no effect while processes.policy is equal; set it to weighted`}},
		{file: on + gpu + "processes: {policy: weighted, weights: \"kernel:9\"}}\n"},
		{file: policy("fifo", "") + gpu + "processes: {policy: weighted, weights: \"kernel:9\"}}\n", want: []string{`f.yaml:3: gpus[0].processes.weights: kernel:9: has no effect while scheduler.policy is fifo`}},
		// Of what is not there.
		{file: "limits: {doorbell-fast: 10us, map-runs: 8}\n" + gpu + "}\n", want: []string{`f.yaml:1: limits.doorbell-fast: 10µs: has no effect while no GPU has doorbell: poll`}},
		{file: "limits: {doorbell-load: 30%}\n" + gpu + "doorbell: poll}\n"},
		{file: "limits: {map-runs: 8}\n" + gpu + "bar-map: none}\n", want: []string{`f.yaml:1: limits.map-runs: 8: has no effect while no GPU has a bar-map`}},
		{file: "control: c.sock\nlimits: {doorbell-fast: 10us}\nshadow: {sync: flush}\n"},
		// Of what the transport does not do.
		{file: "server: {transport: libvfio-user}\n" + gpu + "doorbell: poll, bar-map: all}\n", want: []string{
			`f.yaml:3: gpus[0].bar-map: all: has no effect: server.transport is libvfio-user; it is for native`,
			`f.yaml:3: gpus[0].doorbell: poll: has no effect: server.transport is libvfio-user; it is for native`,
		}},
		{file: "server: {transport: libvfio-user, write-multi: false}\n" + gpu + "doorbell: trap, bar-map: none}\n"},
		{file: "server: {transport: libvfio-user, max-dma-mappings: 64}\n" + gpu + "}\n", want: []string{
			`f.yaml:1: server.max-dma-mappings: 64: has no effect: server.transport is libvfio-user; it is for native`,
		}},
		{file: "server: {max-dma-mappings: 64}\n" + gpu + "}\n"},
		{file: "socket: s.sock\nserver: {transport: libvfio-user}\ncard: {bar-map: bar1}\n", alone: true, want: []string{
			`f.yaml:3: card.bar-map: bar1: has no effect: server.transport is libvfio-user; it is for native`,
		}},
		// One guest alone. The log hears of its mapped windows.
		{file: "socket: s.sock\nlimits: {rule-interval: 5s}\n", alone: true},
		{file: "socket: s.sock\nlimits: {rule-interval: 5s}\ncard: {bar-map: none}\n", alone: true, want: []string{
			`f.yaml:2: limits.rule-interval: 5s: has no effect while no GPU has a bar-map`,
		}},
		{file: "socket: s.sock\nlimits: {guests: 3, map-runs: 9, request: 2s}\nshadow: {sync: flush}\nscheduler: {depth: 2}\n", alone: true, want: []string{
			`f.yaml:3: shadow.sync: flush: has no effect: the whole card is one guest's; it is for cards that virtual GPUs share`,
			`f.yaml:2: limits.guests: 3: has no effect: the whole card is one guest's; it is for cards that virtual GPUs share`,
			`f.yaml:2: limits.request: 2s: has no effect: the whole card is one guest's; it is for cards that virtual GPUs share`,
			`f.yaml:4: scheduler.depth: 2: has no effect: the whole card is one guest's; it is for cards that virtual GPUs share`,
		}},
		// Doorbells that are looked for where other writes are trapped.
		{file: gpu + "doorbell: poll, bar-map: none}\n", want: []string{`f.yaml:2: gpus[0].doorbell: poll: ` + slow}},
		{file: gpu + "doorbell: poll, bar-map: [bar1, rom]}\n", want: []string{`f.yaml:2: gpus[0].doorbell: poll: is slow with bar-map: bar1,rom: QEMU waits for every write of the guest to what is not mapped (bar3,pramin); set bar-map to all, or doorbell to trap`}},
		{file: gpu + "doorbell: poll, bar-map: [bar1, bar3, pramin]}\n"},
		{file: "card: {doorbell: poll, bar-map: none}\n" + gpu + "}\n- {name: b, socket: b.sock, vram: 64MiB}\n- {name: c, socket: c.sock, vram: 64MiB, doorbell: trap}\n", want: []string{`f.yaml:1: card.doorbell: poll: ` + slow}},
		{file: "socket: s.sock\ncard: {doorbell: poll, bar-map: none}\n", alone: true, want: []string{`f.yaml:2: card.doorbell: poll: ` + slow}},
	} {
		l, err := join(t, c.file)
		require.NoError(t, err, c.file)
		var got []string
		for _, w := range l.Warnings(c.alone) {
			got = append(got, w.Error())
		}
		require.Equal(t, c.want, got, c.file)
	}
}

// TestIdle: of what is changed, it is said what has no effect now.
func TestIdle(t *testing.T) {
	s := ScheduleOf(ptr(sched.Default()))
	changed, err := s.Change("scheduler.timeslice.slice=10ms,credit.period=5ms")
	require.NoError(t, err)
	require.Equal(t, []*Error{{"timeslice.slice", "10ms", "has no effect while the policy is credit; it is for timeslice"}}, changed.Idle("scheduler.timeslice.slice=10ms,credit.period=5ms", Beside{}))
}

// TestArisen: of a change it is told what it touched and what it made; what has stood for
// long is not told again.
func TestArisen(t *testing.T) {
	l, err := join(t, "scheduler: {policy: credit, credit: {period: 12ms}, timeslice: {slice: 10ms}}\ngpus:\n"+
		"- {name: a, socket: a.sock, vram: 64MiB, weight: 300}\n- {name: b, socket: b.sock, vram: 64MiB, weight: 100}\n")
	require.NoError(t, err)
	gpus := l.Config.GPUs
	schedule := l.Config.Schedule()
	told := func(text string) (out []string) {
		before := l.Standing(&schedule, gpus)
		schedule, err = schedule.Change(text)
		require.NoError(t, err)
		for _, w := range Arisen(schedule.Idle(text, BesideOf(gpus)), before, l.Standing(&schedule, gpus)) {
			out = append(out, w.Where)
		}
		return out
	}
	weight := "f.yaml:3: gpus[0].weight"
	require.Equal(t, []string{"credit.period", weight}, told("policy=none"))
	require.Empty(t, told("policy=fifo"), "it is another policy, but nothing has lost its effect by it")
	require.Equal(t, []string{"credit.period"}, told("policy=dfq,credit.period=15ms"), "it is touched")
	require.Empty(t, told("policy=band"))
	require.Equal(t, []string{weight}, told("hierarchy=flat"))
	require.Equal(t, []string{"timeslice.slice"}, told("timeslice.slice=11ms"))
	require.Equal(t, []string{"credit.period"}, told("policy=timeslice"), "timeslice.slice has its effect again")
	require.Equal(t, []string{"timeslice.slice"}, told("policy=credit"), "it had an effect, and lost it")
}

// TestEveryPolicyUsesItsOwn: each policy's own options are that policy's, and of no other.
func TestEveryPolicyUsesItsOwn(t *testing.T) {
	s := new(Schedule)
	for _, key := range s.Keys() {
		section, _, inSection := strings.Cut(key, ".")
		for _, name := range sched.Policies() {
			c := sched.Default()
			require.NoError(t, c.Policy.UnmarshalText([]byte(name)))
			s := ScheduleOf(&c)
			if inSection && section == name {
				require.Empty(t, s.idle(key, Beside{}), "%s with %s", key, name)
			}
			if _, own := map[string]bool{"band": true, "timeslice": true, "dfq": true}[section]; own && section != name {
				require.NotEmpty(t, s.idle(key, Beside{}), "%s with %s", key, name)
			}
		}
	}
}

// TestCheckScheduled: a change of what nobody keeps to is refused, others are not.
func TestCheckScheduled(t *testing.T) {
	l, err := join(t, "gpus:\n- {name: a, socket: a.sock, vram: 64MiB}\n")
	require.NoError(t, err)
	g := &l.Config.GPUs[0]
	require.NoError(t, CheckScheduled(g, "shadow.scan=full,shadow.sync=flush"))
	require.ErrorContains(t, CheckScheduled(g, "shadow.sync=flush,cap=50"), "cap: 50: has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit")
}

// TestWrittenAsPeopleDo: percent with its sign, and a time without a unit is told what it
// would be with one.
func TestWrittenAsPeopleDo(t *testing.T) {
	l, err := join(t, "limits: {doorbell-load: 40%}\nscheduler: {policy: credit}\n", "name=a,socket=a.sock,vram=64MiB,cap=50%")
	require.NoError(t, err)
	require.EqualValues(t, 40, l.Config.Limits.DoorbellLoad)
	require.EqualValues(t, 50, l.Config.GPUs[0].Cap)
	for text, want := range map[string]string{
		"30":   `"30" is not a time, it has no unit; write 30ms, 30us or 30s`,
		"1.5":  `"1.5" is not a time, it has no unit; write 1.5ms, 1.5us or 1.5s`,
		"soon": `"soon" is not a time; write a number and a unit: 500us, 30ms, 10s`,
		"":     `"" is not a time; write a number and a unit: 500us, 30ms, 10s`,
		"NaN":  `"NaN" is not a time; write a number and a unit: 500us, 30ms, 10s`,
	} {
		_, err := ParseTime(text)
		require.EqualError(t, err, want)
	}
	require.ErrorContains(t, new(Percent).UnmarshalText([]byte("half")), `"half" is not a whole number of percent; write 50, or 50%`)
}

func ptr[T any](v T) *T { return &v }
