package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// TestSchedule: every policy has its word, off is none at all, and what the options
// say by default is what the scheduler itself has.
func TestSchedule(t *testing.T) {
	l, err := join(t, "")
	require.NoError(t, err)
	c, err := l.Config.Schedule()
	require.NoError(t, err)
	require.Nil(t, c)
	for _, policy := range sched.Policies() {
		want := sched.Default()
		require.NoError(t, want.Policy.UnmarshalText([]byte(policy)))
		l, err := join(t, "scheduler: {policy: "+policy+"}\n")
		require.NoError(t, err)
		c, err := l.Config.Schedule()
		require.NoError(t, err)
		require.Equal(t, &want, c)
	}
	for _, hierarchy := range sched.Hierarchies() {
		l, err := join(t, "scheduler: {policy: credit, depth: 64, period: 1s, slice: 100us, hierarchy: "+hierarchy+"}\nlimits: {request: 0s}\n")
		require.NoError(t, err)
		want := sched.Default()
		require.NoError(t, want.Hierarchy.UnmarshalText([]byte(hierarchy)))
		want.Depth, want.Credit.Period, want.Timeslice.Slice, want.Watchdog.Limit = 64, time.Second, 100*time.Microsecond, 0
		c, err := l.Config.Schedule()
		require.NoError(t, err)
		require.Equal(t, &want, c)
	}
}

// TestCardTime: what is said of a GPU's part of the card's time is what the
// scheduler is told, and back.
func TestCardTime(t *testing.T) {
	for _, of := range []CardTime{{Weight: 1}, {Weight: 100, Cap: 1}, {Weight: 10000, Cap: 100, Priority: 7}} {
		require.Equal(t, sched.NodeConfig{Weight: of.Weight, Cap: of.Cap * 10, Priority: of.Priority}, of.Node())
		require.Equal(t, of, CardTimeOf(of.Node()))
	}
	l, err := join(t, "scheduler: {policy: fifo}\n", "name=a,socket=a.sock,vram=64MiB,weight=7,cap=25,priority=2")
	require.NoError(t, err)
	g, err := Change(l.Config.GPUs[0], "weight=9")
	require.NoError(t, err)
	require.Equal(t, CardTime{9, 25, 2}, g.CardTime)
	require.NoError(t, l.CheckCardTime(&g))
}

func TestSchedulerErrors(t *testing.T) {
	const on, gpu = "scheduler: {policy: credit}\n", "gpus:\n- {name: a, socket: a.sock, vram: 64MiB, "
	for _, c := range []struct{ file, want string }{
		{"scheduler: {policy: fair}\n", `f.yaml:1: scheduler.policy: fair: must be off or none or fifo or credit or band or timeslice or dfq`},
		{"scheduler: {hierarchy: bush}\n", `f.yaml:1: scheduler.hierarchy: bush: must be tree or flat-weights or flat`},
		{"scheduler: {depth: 0}\n", `f.yaml:1: scheduler.depth: 0: must be 1 to 64`},
		{"scheduler: {depth: 65}\n", `f.yaml:1: scheduler.depth: 65: must be 1 to 64`},
		{"scheduler: {period: 999us}\n", `f.yaml:1: scheduler.period: 999µs: must be 1ms to 1s`},
		{"scheduler: {slice: 2s}\n", `f.yaml:1: scheduler.slice: 2s: must be 100us to 1s`},
		{"scheduler: {polic: dfq}\n", `f.yaml:1: scheduler.polic: unknown key; did you mean "policy"? There are policy, hierarchy, depth, period, slice`},
		{on + "limits: {request: 61m}\n", `f.yaml:2: limits.request: 1h1m0s: must be 0s to 1h`},
		{on + "limits: {request: -1s}\n", `f.yaml:2: limits.request: -1s: must be 0s to 1h`},
		{"limits: {request: 2s}\n", `f.yaml:1: limits.request: 2s: has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit, or leave it out`},
		{on + gpu + "weight: 0}\n", `f.yaml:3: gpus[0].weight: 0: must be 1 to 10000`},
		{on + gpu + "weight: 10001}\n", `f.yaml:3: gpus[0].weight: 10001: must be 1 to 10000`},
		{on + gpu + "weight: heavy}\n", `f.yaml:3: gpus[0].weight: "heavy" is not a whole number`},
		{on + gpu + "cap: 101}\n", `f.yaml:3: gpus[0].cap: 101: must be 0 to 100`},
		{on + gpu + "cap: -1}\n", `f.yaml:3: gpus[0].cap: -1: must be 0 to 100`},
		{on + gpu + "priority: 8}\n", `f.yaml:3: gpus[0].priority: 8: must be 0 to 7`},
		{on + "profiles: [{name: p, weight: 10001}]\n", `f.yaml:2: profiles[0].weight: 10001: must be 1 to 10000`},
		{gpu + "weight: 200}\n", `f.yaml:2: gpus[0].weight: 200: has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit, or leave it out`},
		{gpu + "cap: 20}\n", `f.yaml:2: gpus[0].cap: 20: has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit, or leave it out`},
		{gpu + "priority: 0}\n", `f.yaml:2: gpus[0].priority: 0: has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit, or leave it out`},
		{"profiles: [{name: p, weight: 9}]\n" + gpu + "profile: p}\n", `f.yaml:1: profiles[0].weight: 9: has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit, or leave it out`},
	} {
		_, err := join(t, c.file)
		require.EqualError(t, err, c.want, "%s", c.file)
		require.IsType(t, new(Error), err)
	}
	l, err := join(t, gpu+"}\nlimits: {request: 0s}\n")
	require.NoError(t, err, "no limit is no effect that is missing")
	g, err := Change(l.Config.GPUs[0], "cap=50")
	require.NoError(t, err)
	require.EqualError(t, l.CheckCardTime(&g), `gpu a: cap: 50: has no effect without a scheduler; start the server with scheduler.policy (--sched-policy), for example credit, or leave it out`)
}
