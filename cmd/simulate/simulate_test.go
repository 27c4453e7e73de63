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
	r := simulate(t, Options{Policy: []string{"none", "credit"}})
	require.InDelta(t, 0.4766, r.Runs[0].ShareError, 0.001)
	require.InDelta(t, 0.5, r.Runs[1].Clients[0].Share, 0.01)
	r = simulate(t, Options{Preset: "between", Policy: []string{"credit", "none"}})
	require.Less(t, r.Runs[0].Flatness, 0.02)
	require.Greater(t, r.Runs[1].Flatness, 1.0, "each run has a mix of its own")
	r = simulate(t, Options{Preset: "cheat", Policy: []string{"dfq"}, Set: []string{"dfq.model=true"}})
	require.Greater(t, r.Runs[0].Clients[0].Share, 0.75)
	for _, p := range Presets() {
		_, err := (&Options{Preset: p.Name}).Plan()
		require.NoError(t, err, p.Name)
	}
}

// A mix with pauses is held against what its load can use, not against equal shares.
func TestFairShareOfPauses(t *testing.T) {
	r := simulate(t, Options{Guest: []string{"name=desk,busy=100us,think=9900us", "name=full,busy=100us"}, Policy: []string{"credit"}})
	desk := r.Runs[0].Clients[0]
	require.InDelta(t, 0.01, desk.Fair, 0.001)
	require.Less(t, r.Runs[0].ShareError, 0.005)
	require.Greater(t, r.Runs[0].Jain, 0.99)
}

func plan(t *testing.T, text string) (*Plan, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mix.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	t.Chdir(filepath.Dir(name))
	return (&Options{Mix: "mix.yaml"}).Plan()
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
      - {name: c, cap: 3, load: {busy: 1ms}}
`)
	require.NoError(t, err)
	require.Equal(t, []any{"all of it", "one line", 3 * time.Second, uint64(7)}, []any{p.Name, p.About, p.Duration, p.Seed})
	require.Len(t, p.Configs, 2)
	require.Equal(t, 50*ms, p.Configs[1].DFQ.FreeRun)
	require.Equal(t, 2, p.Configs[1].Depth)
	require.Equal(t, []model.Node{
		{Name: "a", Weight: 10000, Cap: 500, Priority: 7, Limit: 2 * time.Second, Queued: 9, Count: 2, Merged: true, Load: &throttle.Load{
			Busy: ms, BusyMost: 2 * ms, Think: 3 * ms, Burst: 4, Ahead: 5, Copies: 6, CopyBusy: 7 * us, Requests: 8, Start: 9 * ms, Stop: 10 * ms, Life: 11 * ms, Alone: 12 * ms}},
		{Name: "b", Cap: 10, Nodes: []model.Node{{Name: "c", Cap: 30, Load: &throttle.Load{Busy: ms}}}},
	}, p.Mixes[0].Guests)
}

// Errors name the place, and what would be accepted.
func TestErrors(t *testing.T) {
	const a, load = "guests:\n- name: a\n  ", "\n  load: {busy: 1ms}\n"
	for _, c := range []struct{ text, want string }{
		{a + "wieght: 3" + load, `mix.yaml:3:3: unknown field "wieght"`},
		{a + "weight: 20000" + load, `mix.yaml:3: guests[0].weight: 20000: must be 1 to 10000`},
		{a + "cap: 500" + load, `mix.yaml:3: guests[0].cap: 500: must be 0 to 100 percent`},
		{"guests:\n- name: a\n  processes:\n  - name: b\n    priority: 9\n    load: {busy: 1ms}\n", `mix.yaml:5: guests[0].processes[0].priority: 9: must be 0 to 7`},
		{a + "load:\n    think: 1ms\n    busy: 2h\n", `mix.yaml:5: guests[0].load.busy: 2h0m0s: must be 1µs to 1m0s`},
		{"set: {credit.perod: 1ms}\n" + a + load[3:], `mix.yaml: set: credit.perod: unknown key; did you mean "credit.period"? There are `},
		{"policies: [creidt]\n" + a + load[3:], `mix.yaml: policies: creidt: did you mean "credit"? There are `},
		{"", `mix.yaml: guests: none: name one or more`},
	} {
		_, err := plan(t, c.text)
		require.ErrorContains(t, err, c.want, "%s", c.text)
		require.ErrorAs(t, err, new(*config.Error))
	}
	for text, want := range map[string]string{
		"name=a,busy=1ms,weight=-1":   "--guest: weight: -1: must be 1 to 10000",
		"name=a,busy=1ms,cap=101":     "--guest: cap: 101: must be 0 to 100",
		"name=a,busy=soon":            `--guest: busy: "soon" is not a time`,
		"name=a,busy=1ms,copies=1001": "--guest: guests[0].load.copies: 1001: must be ",
	} {
		_, err := (&Options{Guest: []string{text}}).Plan()
		require.ErrorContains(t, err, want)
	}
	_, err := (&Options{Set: []string{"policy=band"}}).Plan()
	require.ErrorContains(t, err, "--set: policy: band: no parameter; --policy names those to compare")
	p, err := (&Options{Preset: "base", Policy: []string{"credit"}, Duration: new(time.Second)}).Plan()
	require.NoError(t, err)
	_, err = Simulate(t.Context(), p)
	require.ErrorContains(t, err, "--duration: 1s: the program had not ended with credit where the length of the other's requests in ms is 0.1")
}
