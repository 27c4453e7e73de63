package simulate

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/cmd/config"
)

func plan(t *testing.T, text string) (*Plan, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mix.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	t.Chdir(filepath.Dir(name))
	return (&Options{File: "mix.yaml"}).Plan()
}

// TestMixFile: everything that a file can say arrives, caps in percent.
func TestMixFile(t *testing.T) {
	p, err := plan(t, `
name: all of it
about: |
  two
  lines
duration: 3s
seed: 7
set: {dfq.free-run: 50ms, depth: 2}
policies: [credit, band]
guests:
  - {name: a, weight: 10000, cap: 50%, priority: 7, limit: 2s, queued: 9, count: 2, merged: true,
     load: {busy: 1ms, busy-most: 2ms, think: 3ms, burst: 4, ahead: 5, copies: 6, copy-busy: 7us, requests: 8, start: 9ms, stop: 10ms, life: 11ms, alone: 12ms}}
  - name: b
    cap: 1
    processes:
      - {name: c, load: {busy: 1ms}}
`)
	require.NoError(t, err)
	require.Equal(t, "all of it", p.Name)
	require.Equal(t, "two\nlines\n", p.About)
	require.Equal(t, 3*time.Second, p.Duration)
	require.EqualValues(t, 7, p.Seed)
	require.Len(t, p.Variants, 2)
	require.Equal(t, 50*time.Millisecond, p.Variants[1].Config.DFQ.FreeRun)
	require.Equal(t, 2, p.Variants[1].Config.Depth)
	require.Equal(t, []model.Node{
		{Name: "a", Weight: 10000, Cap: 500, Priority: 7, Limit: 2 * time.Second, Queued: 9, Count: 2, Merged: true, Load: &throttle.Load{
			Busy: ms, BusyMost: 2 * ms, Think: 3 * ms, Burst: 4, Ahead: 5, Copies: 6, CopyBusy: 7 * us, Requests: 8, Start: 9 * ms, Stop: 10 * ms, Life: 11 * ms, Alone: 12 * ms}},
		{Name: "b", Cap: 10, Nodes: []model.Node{{Name: "c", Load: &throttle.Load{Busy: ms}}}},
	}, p.Mix.Guests)
}

// TestNodeIsWhole: a file can say of a node whatever the model takes.
func TestNodeIsWhole(t *testing.T) {
	model := reflect.TypeFor[model.Node]()
	require.Len(t, keys(reflect.TypeFor[node]()), model.NumField())
	for i := range model.NumField() {
		f, ok := reflect.TypeFor[node]().FieldByName(model.Field(i).Name)
		require.True(t, ok, model.Field(i).Name)
		require.Equal(t, model.Field(i).Tag.Get("yaml"), f.Tag.Get("yaml"))
	}
	for _, c := range []struct {
		field string
		most  int
	}{{"Weight", sched.MaxWeight}, {"Priority", sched.MaxPriority}, {"Cap", sched.FullCap / perCent}} {
		f, _ := reflect.TypeFor[node]().FieldByName(c.field)
		require.Equal(t, strconv.Itoa(c.most), f.Tag.Get("max"))
	}
}

// TestMixErrors: what is wrong is named, with its line, its key and what would be right.
func TestMixErrors(t *testing.T) {
	const a = "guests:\n- name: a\n  "
	const load = "\n  load: {busy: 1ms}\n"
	for _, c := range []struct{ text, want string }{
		{a + "wieght: 3" + load, `mix.yaml:3: guests[0].wieght: unknown key; did you mean "weight"? There are name, weight, cap, priority, limit, queued, count, merged, load, processes`},
		{a + "weight: 0" + load, `mix.yaml:3: guests[0].weight: 0: must be 1 to 10000`},
		{a + "weight: 20000" + load, `mix.yaml:3: guests[0].weight: 20000: must be 1 to 10000`},
		{a + "weight: much" + load, `mix.yaml:3: guests[0].weight: "much" is not a whole number`},
		{a + "weight:" + load, `mix.yaml:3: guests[0].weight: has no value; give one or remove the line`},
		{a + "cap: 500" + load, `mix.yaml:3: guests[0].cap: 500: must be 0 to 100`},
		{a + "cap: half" + load, `mix.yaml:3: guests[0].cap: "half" is not a whole number of percent; write 50, or 50%`},
		{a + "priority: 8" + load, `mix.yaml:3: guests[0].priority: 8: must be 0 to 7`},
		{a + "merged: perhaps" + load, `mix.yaml:3: guests[0].merged: "perhaps" is neither true nor false`},
		{a + "count: 0" + load, `mix.yaml:3: guests[0].count: 0: must be 1 to 4096`},
		{a + "load: {busy: 30}\n", `mix.yaml:3: guests[0].load.busy: "30" is not a time, it has no unit; write 30ms, 30us or 30s`},
		{a + "load:\n    think: 1ms\n    busy: 2h\n", `mix.yaml:5: guests[0].load.busy: 2h0m0s: must be 1µs to 1m0s`},
		{a + "load: {think: 1ms}\n", `mix.yaml:3: guests[0].load.busy: 0s: must be 1µs to 1m0s`},
		{a + "load: 3ms\n", `mix.yaml:3: guests[0].load: not a mapping; write keys and values: busy, busy-most, think, burst, ahead, copies, copy-busy, requests, start, stop, life, alone`},
		{a + "processes: [{name: p, load: {bsy: 1ms}}]\n", `mix.yaml:3: guests[0].processes[0].load.bsy: unknown key; did you mean "busy"? There are busy, `},
		{a + "weight: 3\n", `mix.yaml:2: guests[0].load: none: give a load, or processes with loads`},
		{"guests: a\n", `mix.yaml:1: guests: not a list; `},
		{"gests: []\n", `mix.yaml:1: gests: unknown key; did you mean "guests"? There are name, about, duration, seed, set, policies, guests`},
		{"set: {credit.perod: 1ms}\n" + a + load[3:], `mix.yaml:1: set: credit.perod: unknown setting; did you mean "credit.period"? There are `},
		{"set: {credit.period: 2s}\n" + a + load[3:], `mix.yaml:1: set: credit.period: 2s: must be 1ms to 1s`},
		{"policies: [creidt]\n" + a + load[3:], `mix.yaml:1: policies: creidt: did you mean "credit"? There are `},
		{"duration: 2h\n" + a + load[3:], `mix.yaml:1: duration: 2h0m0s: must be 80ms to 1h0m0s`},
		{"seed: -1\n", `mix.yaml:1: seed: "-1" is not a whole number, 0 or more`},
		{"- a\n", `mix.yaml:1: not a mapping; write keys and values: name, about, `},
		{"a: [\n", `mix.yaml:1: `},
		{"name: a\n---\nname: b\n", `mix.yaml:3: a second document; put everything into one`},
		{"", `guests: none: name one or more`},
	} {
		_, err := plan(t, c.text)
		require.ErrorContains(t, err, c.want, "%s", c.text)
		require.IsType(t, new(config.Error), err)
		require.Truef(t, len(err.Error()) >= len(c.want) && err.Error()[:len(c.want)] == c.want, "%s", err)
	}
	for text, want := range map[string]string{
		"name=a,busy=1ms,weight=0":         "--guest: weight: 0: must be 1 to 10000",
		"name=a,busy=1ms,cap=101%":         "--guest: cap: 101%: must be 0 to 100",
		"name=a,busy=30":                   `--guest: busy: "30" is not a time, it has no unit; write 30ms, 30us or 30s`,
		"name=a,busy=1ms,busy=2ms":         "--guest: name=a,busy=1ms,busy=2ms: busy is there twice",
		"name=a,busy=1ms,processes=0":      "--guest: processes: 0: must be 1 to 4096",
		"name=a,busy=1ms,limit=1s":         "--guest: limit: unknown key; ",
		"name=a,busy=1ms,copies=1001":      "--guest: guests[0].load.copies: 1001: must be ",
		"name=a,busy=1ms,weight=1,cap=50x": `--guest: cap: "50x" is not a whole number of percent; write 50, or 50%`,
	} {
		_, err := (&Options{Guests: []string{text}}).Plan()
		require.ErrorContains(t, err, want)
	}
	n, err := parseGuest("name=a,busy=1ms,cap=50")
	require.NoError(t, err)
	require.Equal(t, 500, n.Cap)
}

// FuzzMix: whatever a file has in it, it is a plan or an error that says what is wrong.
func FuzzMix(f *testing.F) {
	for _, text := range []string{"", "guests: [{name: a, load: {busy: 1ms}}]", "set: {a: {b: c}}", "guests: {a: b}", "a: &x [*x]", "? {a: b}\n: c", "guests: [[[[]]]]", "about: >\n x\n", "- - -"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parse("f.yaml", []byte(text)); err != nil {
			require.IsType(t, new(config.Error), err)
		}
	})
}
