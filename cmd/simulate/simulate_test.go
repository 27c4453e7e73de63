package simulate

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/cmd/config"
)

func simulate(t *testing.T, o Options) *Report {
	t.Helper()
	p, err := o.Plan()
	require.NoError(t, err)
	r, err := Simulate(t.Context(), p)
	require.NoError(t, err)
	return r
}

// The published figures: by the card alone 4171 us against 100 us are 97.7 %, and the sweeps
// are flat under credit.
func TestPresets(t *testing.T) {
	r := simulate(t, Options{Policies: []string{"none", "credit"}})
	require.InDelta(t, 0.4766, r.Runs[0].ShareError, 0.001)
	require.InDelta(t, 0.5, r.Runs[1].Clients[0].Share, 0.01)
	require.Contains(t, r.Text(), "97.66 %")
	r = simulate(t, Options{Preset: "between", Policies: []string{"credit"}})
	require.Less(t, r.Runs[0].Flatness, 0.02)
	r = simulate(t, Options{Preset: "cheat", Policies: []string{"dfq"}, Set: []string{"dfq.model=true"}})
	require.Greater(t, r.Runs[0].Clients[0].Share, 0.75)
	for _, p := range Presets() {
		_, err := (&Options{Preset: p.Name}).Plan()
		require.NoError(t, err, p.Name)
	}
}

// A mix with pauses is held against what its load can use, not against equal shares.
func TestFairShareOfPauses(t *testing.T) {
	r := simulate(t, Options{Guests: []string{"name=desk,busy=100us,think=9900us", "name=full,busy=100us"}, Policies: []string{"credit"}})
	desk := r.Runs[0].Clients[0]
	require.InDelta(t, 0.01, desk.Fair, 0.001)
	require.Less(t, r.Runs[0].ShareError, 0.005)
	require.Greater(t, r.Runs[0].Jain, 0.99)
}

func TestManyProcesses(t *testing.T) {
	r := simulate(t, Options{Guests: []string{"name=a,busy=1ms,processes=40", "name=b,busy=1ms"}, Policies: []string{"credit"}, Duration: time.Second})
	require.Contains(t, r.Text(), "and 25 more, which --json has")
}

func plan(t *testing.T, text string) (*Plan, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mix.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	t.Chdir(filepath.Dir(name))
	return (&Options{File: "mix.yaml"}).Plan()
}

// Everything that a file can say arrives, caps in percent.
func TestMixFile(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	p, err := plan(t, `
name: all of it
about: one line
duration: 3s
seed: 7
set: {dfq.free-run: 50ms, depth: 2}
policies: [credit, band]
guests:
  - {name: a, weight: 10000, cap: 50, priority: 7, limit: 2s, queued: 9, count: 2, merged: true,
     load: {busy: 1ms, busy-most: 2ms, think: 3ms, burst: 4, ahead: 5, copies: 6, copy-busy: 7us, requests: 8, start: 9ms, stop: 10ms, life: 11ms, alone: 12ms}}
  - name: b
    cap: 1
    processes:
      - {name: c, load: {busy: 1ms}}
`)
	require.NoError(t, err)
	require.Equal(t, []any{"all of it", "one line", 3 * time.Second, uint64(7)}, []any{p.Name, p.About, p.Duration, p.Seed})
	require.Len(t, p.Configs, 2)
	require.Equal(t, 50*ms, p.Configs[1].DFQ.FreeRun)
	require.Equal(t, 2, p.Configs[1].Depth)
	require.Equal(t, []model.Node{
		{Name: "a", Weight: 10000, Cap: 500, Priority: 7, Limit: 2 * time.Second, Queued: 9, Count: 2, Merged: true, Load: &throttle.Load{
			Busy: ms, BusyMost: 2 * ms, Think: 3 * ms, Burst: 4, Ahead: 5, Copies: 6, CopyBusy: 7 * us, Requests: 8, Start: 9 * ms, Stop: 10 * ms, Life: 11 * ms, Alone: 12 * ms}},
		{Name: "b", Cap: 10, Nodes: []model.Node{{Name: "c", Load: &throttle.Load{Busy: ms}}}},
	}, p.Mix.Guests)
}

// Errors name the place, and what would be accepted.
func TestErrors(t *testing.T) {
	const a, load = "guests:\n- name: a\n  ", "\n  load: {busy: 1ms}\n"
	for _, c := range []struct{ text, want string }{
		{a + "wieght: 3" + load, `mix.yaml:3:3: unknown field "wieght"`},
		{a + "weight: 20000" + load, `mix.yaml:3: guests[0].weight: 20000: must be 1 to 10000`},
		{a + "weight: much" + load, `mix.yaml:3:`},
		{a + "cap: 500" + load, `mix.yaml:3: guests[0].cap: 500: must be 0 to 100 percent`},
		{"guests:\n- name: a\n  processes:\n  - name: b\n    priority: 9\n    load: {busy: 1ms}\n", `mix.yaml:5: guests[0].processes[0].priority: 9: must be 0 to 7`},
		{"guests:\n- name: a\n  processes:\n  - name: b\n    cap: 101\n    load: {busy: 1ms}\n", `mix.yaml:5: guests[0].processes[0].cap: 101: must be 0 to 100 percent`},
		{a + "count: -1" + load, `mix.yaml:3: guests[0].count: -1: must be 1 to 4096`},
		{a + "load:\n    think: 1ms\n    busy: 2h\n", `mix.yaml:5: guests[0].load.busy: 2h0m0s: must be 1µs to 1m0s`},
		{a + "load: {think: 1ms}\n", `mix.yaml:3: guests[0].load.busy: 0s: must be 1µs to 1m0s`},
		{a + "load: 3ms\n", `mix.yaml:3:`},
		{a + "weight: 3\n", `mix.yaml:2: guests[0].load: none: give a load, or processes with loads`},
		{"gests: []\n", `mix.yaml:1:1: unknown field "gests"`},
		{"set: {credit.perod: 1ms}\n" + a + load[3:], `mix.yaml: set: credit.perod: unknown key; did you mean "credit.period"? There are `},
		{"set: {credit.period: 2s}\n" + a + load[3:], `mix.yaml: set: credit.period: 2s: must be 1ms to 1s`},
		{"policies: [creidt]\n" + a + load[3:], `mix.yaml: policies: creidt: did you mean "credit"? There are `},
		{"duration: 2h\n" + a + load[3:], `--duration: 2h0m0s: must be 80ms to 1h0m0s`},
		{"a: [\n", `mix.yaml:1:`},
		{"", `mix.yaml: guests: none: name one or more`},
	} {
		_, err := plan(t, c.text)
		require.ErrorContains(t, err, c.want, "%s", c.text)
		require.ErrorAs(t, err, new(*config.Error))
	}
	for text, want := range map[string]string{
		"name=a,busy=1ms,weight=-1":         "--guest: weight: -1: must be 1 to 10000",
		"name=a,busy=1ms,cap=101":           "--guest: cap: 101: must be 0 to 100",
		"name=a,busy=1ms,weight=0":          "--guest: weight: 0: must be 1 to 10000",
		"name=a,busy=soon":                  `--guest: busy: "soon" is not a time`,
		"name=a,busy=1ms,busy=2ms":          "--guest: name=a,busy=1ms,busy=2ms: busy is there twice",
		"name=a,busy=1ms,limit=1s":          "--guest: limit: unknown key; ",
		"name=a,busy=1ms,copies=1001":       "--guest: guests[0].load.copies: 1001: must be ",
		"name=a,busy=1ms,name=b\nweight: 3": "name is there twice",
	} {
		_, err := (&Options{Guests: []string{text}}).Plan()
		require.ErrorContains(t, err, want)
	}
	_, err := (&Options{Policies: []string{"credit", "credit"}}).Plan()
	require.EqualError(t, err, "--policy: credit: is there twice")
	p, err := (&Options{Preset: "base", Policies: []string{"credit"}, Duration: time.Second}).Plan()
	require.NoError(t, err)
	_, err = Simulate(t.Context(), p)
	require.ErrorContains(t, err, "--duration: 1s: the program had not ended with credit where the length of the other's requests, ms is 0.1")
}

// FuzzMix: any file is a plan or an error.
func FuzzMix(f *testing.F) {
	for _, text := range []string{"", "guests: [{name: a, load: {busy: 1ms}}]", "set: {a: {b: c}}", "guests: {a: b}", "a: &x [*x]", "guests: [[[[]]]]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parse("f.yaml", []byte(text)); err != nil {
			require.IsType(t, new(config.Error), err)
		}
	})
}
