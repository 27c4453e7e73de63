package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// world is a server without a card and machines without guests, that get on well
// with each other unless a test says otherwise.
type world struct {
	mu       sync.Mutex
	attached map[string]bool
	counts   map[string]map[string]uint64
	moved    uint64
	forB     uint64 // of it
	log      string
	stopped  bool

	setup    string
	unlisted []mmio.Hole
	panics   uint64
	stays    bool // a client that has gone is still shown
	status   string
	stopErr  error
	fails    error // of every request
}

func newWorld() *world {
	return &world{
		attached: map[string]bool{"a": false, "b": false}, counts: map[string]map[string]uint64{"a": {}, "b": {}},
		moved: 1 << 40, forB: 1 << 40, setup: api.SetupVirtual, status: "  a  1MiB  attached  x\n  b  1MiB  attached  x\n",
	}
}

// bump counts something of a guest.
func (w *world) bump(gpu, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[gpu][name]++
	if name == "bad_window" {
		w.log += fmt.Sprintf("time=now level=WARN msg=\"guest broke a rule\" gpu=%s rule=bad_window times=1\n", gpu)
	}
}

func (w *world) list(gpu string) []aggregator.Count {
	var out []aggregator.Count
	for _, name := range []string{"mmu_faults", "bad_window"} {
		out = append(out, aggregator.Count{Name: name, N: w.counts[gpu][name], Rule: name == "bad_window"})
	}
	return out
}

func (w *world) Status(context.Context) (api.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := api.Status{Setup: w.setup}
	for _, name := range []string{"a", "b"} {
		s.GPUs = append(s.GPUs, api.GPU{Name: name, Attached: w.attached[name], Counts: w.list(name)})
	}
	return s, w.fails
}

func (w *world) Report(context.Context) (serve.Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var r serve.Report
	for _, m := range movers {
		r.Card.Classes = append(r.Card.Classes, serve.ClassCount{Class: fmt.Sprintf("%04x", m.class), Bytes: w.moved, Copies: 1})
	}
	for _, name := range []string{"a", "b"} {
		var work []serve.WorkCount
		for _, k := range r.Card.Classes {
			work = append(work, serve.WorkCount{Class: k.Class, Bytes: map[string]uint64{"a": w.moved, "b": w.forB}[name]})
		}
		r.GPUs = append(r.GPUs, serve.GPUReport{
			Name: name, Work: work, Clients: serve.ClientCount{Panics: w.panics}, Counts: w.list(name), Regions: []serve.RegionCount{{Reads: 1}},
		})
	}
	return r, w.fails
}

func (w *world) Registers(context.Context, string) (serve.PolicyTable, error) {
	return serve.PolicyTable{Rows: []serve.PolicyRow{{Reads: 1}}, Unlisted: w.unlisted}, w.fails
}

func (w *world) Command(_ context.Context, args ...string) (string, error) { return w.status, w.fails }
func (w *world) Log() (string, error)                                      { w.mu.Lock(); defer w.mu.Unlock(); return w.log, w.fails }
func (w *world) Stop(context.Context) error                                { w.stopped = true; return w.stopErr }

// member is a guest of that world.
type member struct {
	w    *world
	name string

	mu      sync.Mutex
	answers says
	reach   []uint32 // what it reads where it may not

	rebootErr, poweroffErr error
}

func (m *member) Call(ctx context.Context, cmd string, args, result any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, set := m.answers[cmd]; !set {
		switch cmd {
		case proto.CmdFault:
			m.w.bump(m.name, "mmu_faults")
		case proto.CmdRegisters:
			if r := args.(proto.RegistersArgs); len(r.Accesses) > 1 {
				m.w.bump(m.name, "bad_window")
				return says{cmd: proto.RegistersResult{Values: m.reach}}.Call(ctx, cmd, args, result)
			}
		}
		return m.content().Call(ctx, cmd, args, result)
	}
	return m.answers.Call(ctx, cmd, args, result)
}

func (m *member) content() says {
	g := fine()
	g[proto.CmdLoad] = proto.LoadResult{Clients: 1}
	g[proto.CmdLoadStop] = proto.LoadTotals{Copies: 7, Bytes: 7000}
	g[proto.CmdRegisters] = proto.RegistersResult{Values: []uint32{0}}
	g[proto.CmdMark] = proto.MarkResult{Seq: 7}
	return g
}

func (m *member) leave() {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.attached[m.name] = m.w.stays
}

func (m *member) Reboot(context.Context) error   { return m.rebootErr }
func (m *member) Poweroff(context.Context) error { m.leave(); return m.poweroffErr }
func (m *member) Kill()                          { m.leave() }

// newCrowd makes a run of two guests.
func newCrowd(w *world) (*crowd, []*member) {
	r := &sharedResult{}
	d := &crowd{stage: stage{context.Background(), &printer{w: &printed{}}, &r.outcome}, res: r, server: w, settle: 50 * time.Millisecond}
	var members []*member
	for _, name := range []string{"a", "b"} {
		t := &tenant{guestResult: &guestResult{Name: name, Kernel: "6.12.94+deb13-amd64"}, verified: map[string]uint64{}}
		t.kernel = subjectOf(t.Kernel)
		d.guests, r.Guests = append(d.guests, t), append(r.Guests, t.guestResult)
		members = append(members, &member{w: w, name: name, answers: says{}, reach: []uint32{^uint32(0)}})
	}
	d.boot = func(t *tenant) (machine, error) {
		m := members[t.Name[0]-'a']
		if err, ok := m.answers["boot"].(error); ok {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.attached[t.Name] = true
		return m, nil
	}
	d.least = 0
	return d, members
}

func sharedOutcomes(d *crowd) (ok map[string]bool, notRun []string) {
	ok = map[string]bool{}
	for _, c := range d.res.Checks {
		ok[c.Name] = c.OK
		if c.NotRun {
			notRun = append(notRun, c.Name)
		}
	}
	return ok, notRun
}

func TestSharedAllHolds(t *testing.T) {
	w := newWorld()
	d, _ := newCrowd(w)
	require.True(t, d.all())
	for _, c := range d.res.Checks {
		require.True(t, c.OK, "%s: %v", c.Name, c.Problems)
	}
	require.Len(t, d.res.Checks, len(sharedSteps)+3, "boot, probe and copies are two each")
	require.True(t, w.stopped)
	d.res.judge()
	require.True(t, d.res.OK)
	require.Positive(t, d.res.Guests[1].Verified)
	require.EqualValues(t, 1, d.res.Guests[0].Broken["bad_window"])
}

// Each of these is one thing wrong in an otherwise content world, and must show in
// that check, and in the end.
func TestSharedEachCanFail(t *testing.T) {
	refused := &lab.CallError{Cmd: "x", Message: "no"}
	wrong := proto.LoadTotals{Copies: 7, Bytes: 7000, Wrong: 1}
	for _, c := range []struct {
		check string
		spoil func(w *world, a, b *member)
	}{
		{"serve", func(w *world, _, _ *member) { w.setup = api.SetupPassThrough }},
		{"serve", func(w *world, _, _ *member) { w.attached["b"] = true }},
		{"serve", func(w *world, _, _ *member) { w.fails = errors.New("nobody there") }},
		{"boot b", func(_ *world, _, b *member) { b.answers["boot"] = errors.New("panic") }},
		{"probe a", func(_ *world, a, _ *member) { a.answers[proto.CmdModprobe] = refused }},
		{"probe b", func(_ *world, _, b *member) { b.answers[proto.CmdDRI] = proto.DRIResult{} }},
		{"probe b", func(_ *world, _, b *member) { b.answers[proto.CmdKmsg] = proto.KmsgResult{} }},
		{"copies a", func(_ *world, a, _ *member) { a.answers[proto.CmdM2MF] = proto.CopyResult{} }},
		{"copies b", func(_ *world, _, b *member) { b.answers[proto.CmdCE] = refused }},
		{"copies b", func(_ *world, _, b *member) { b.answers[proto.CmdLoad] = refused }},
		{"copies b", func(_ *world, _, b *member) { b.answers[proto.CmdLoadStop] = wrong }},
		{"card's count", func(w *world, _, _ *member) { w.moved = 10 }},
		{"card's count", func(w *world, _, _ *member) { w.forB = 10 }},
		{"card's count", func(w *world, _, _ *member) { w.panics = 1 }},
		{"reboot", func(_ *world, a, _ *member) { a.rebootErr = errors.New("hangs") }},
		{"reboot", func(_ *world, _, b *member) { b.answers[proto.CmdLoadStop] = wrong }},
		{"GPU fault", func(_ *world, _, b *member) {
			b.answers[proto.CmdFault] = proto.OffenceResult{Expected: "killed", Killed: true, FreshWorks: true} // which nobody counted
		}},
		{"GPU fault", func(w *world, _, b *member) {
			w.bump("b", "mmu_faults")
			b.answers[proto.CmdFault] = proto.OffenceResult{Expected: "killed", FreshWorks: true}
		}},
		{"GPU fault", func(_ *world, a, _ *member) { a.answers[proto.CmdLoad] = refused }},
		{"out of bounds", func(_ *world, a, _ *member) { a.reach = []uint32{0x12345678} }},
		{"out of bounds", func(_ *world, a, _ *member) { a.reach = nil }},
		{"out of bounds", func(_ *world, a, _ *member) {
			a.answers[proto.CmdRegisters] = proto.RegistersResult{Values: []uint32{^uint32(0)}}
		}},
		{"status", func(w *world, _, _ *member) { w.status = "  a  1MiB  attached  x\n  b  1MiB  -  x\n" }},
		{"registers", func(w *world, _, _ *member) { w.unlisted = []mmio.Hole{{Reads: 1}} }},
		{"power cut", func(w *world, _, _ *member) { w.stays = true }},
		{"power cut", func(_ *world, _, b *member) { b.answers[proto.CmdLoad] = refused }},
		{"poweroff", func(_ *world, a, _ *member) { a.poweroffErr = errors.New("hangs") }},
		{"server's end", func(w *world, _, _ *member) { w.stopErr = errors.New("exit status 1") }},
	} {
		w := newWorld()
		d, m := newCrowd(w)
		c.spoil(w, m[0], m[1])
		d.all()
		ok, _ := sharedOutcomes(d)
		held, made := ok[c.check]
		require.True(t, made, c.check)
		require.False(t, held, c.check)
		d.res.judge()
		require.False(t, d.res.OK, c.check)
	}
}

// TestNotItsFault: a count that grows for somebody else is somebody's failure too.
func TestNotItsFault(t *testing.T) {
	d, _ := newCrowd(newWorld())
	was := map[string]map[string]uint64{"a": {"n": 1}, "b": {"n": 1}}
	for _, c := range []struct {
		a, b uint64
		ok   bool
	}{{2, 1, true}, {1, 1, false}, {2, 2, false}, {1, 2, false}} {
		var k check
		d.only(&k, d.first(), "n", was, map[string]map[string]uint64{"a": {"n": c.a}, "b": {"n": c.b}})
		require.Equal(t, c.ok, len(k.Problems) == 0, "%+v", c)
	}
}

// Without a guest nothing else is tried, and all of it counts as failed.
func TestSharedNoGuest(t *testing.T) {
	w := newWorld()
	d, m := newCrowd(w)
	m[0].answers["boot"] = errors.New("no")
	require.False(t, d.all())
	ok, notRun := sharedOutcomes(d)
	require.True(t, ok["boot b"])
	require.Len(t, notRun, len(sharedSteps)+3-3)
	require.False(t, w.stopped)
}

func wholeShared() *sharedResult {
	counts := func(bells, bad uint64) (done, broken map[string]uint64) {
		return map[string]uint64{"bells": bells, "binds": 9, "mmu_faults": 0}, map[string]uint64{"bad_window": bad, "over_quota": 0}
	}
	r := &sharedResult{
		outcome: outcome{Setup: setupVirtual, OK: true, QEMU: "11.1.3", Accel: "tcg", Checks: []check{
			{Name: "serve", OK: true, Detail: "process 2587, 2 virtual GPUs on one card", Took: 445 * time.Microsecond},
			{Name: "probe a", OK: true, Detail: "card0 and renderD128, MSI, moves buffers by M2MF, log clean", Took: 3 * time.Second},
			{Name: "probe b", OK: true, Detail: "card0 and renderD128, MSI, moves buffers by M2MF, log clean", Took: 3 * time.Second},
		}, Phases: []phase{{Name: "all", Wall: 33 * time.Second}}},
		Guests: []*guestResult{
			{Name: "a", Kernel: "6.12.117+deb13-amd64", Boot: 5 * time.Second, Probe: 3 * time.Second, Copies: 4248, Verified: 261 << 20, Traps: 1169153, IRQs: 674},
			{Name: "b", Kernel: "7.2.12+deb13-amd64", Boot: 6 * time.Second, Probe: 3 * time.Second, Copies: 20594, Verified: 1284 << 20, Traps: 924159, IRQs: 2837},
		},
		Verified: map[string]uint64{"9039": 1618365873, "90b5": 1393154}, Moved: map[string]uint64{"9039": 1667164930, "90b5": 5536672},
		Status:  "umbra v1, process 2587\n  name  client    socket\n  a     attached  .../a.sock\n",
		LogLine: `time=2026-01-01T00:00:00.000Z level=WARN msg="guest broke a rule" gpu=a rule=bad_window times=1 swallowed=0 in_all=1`,
	}
	r.Config = yaml(r.Guests, true)
	var regs strings.Builder
	regs.WriteString("Counts of a\n  block   register                                offset  access  reads  effect\n")
	for i := range 14 {
		fmt.Fprintf(&regs, "  PTIMER  NV_PTIMER_TIME_%d                        009410  RO      %d     the %dth, in words\n", i, 1000-i, i)
	}
	regs.WriteString("\n14 rows: 14 virtual.\n")
	r.Registers = regs.String()
	r.Guests[0].Done, r.Guests[0].Broken = counts(8844, 1)
	r.Guests[1].Done, r.Guests[1].Broken = counts(21400, 0)
	return r
}

func brokenShared() *sharedResult {
	r := wholeShared()
	r.Control = true
	r.Config = yaml(r.Guests, false)
	r.Checks[2] = check{Name: "probe b", Took: time.Second, Problems: []string{"the guest says: no such device"}}
	r.Checks = append(r.Checks, check{Name: "copies a", NotRun: true})
	r.Moved, r.Status, r.Registers = nil, "", ""
	r.Log = []string{"umbra serve logged:", "nothing"}
	r.judge()
	return r
}

func renderShared(t *testing.T, r *sharedResult) string {
	t.Helper()
	var b bytes.Buffer
	p := &printer{w: &b}
	p.sharedHead(r)
	for i := range r.Checks {
		if !r.Checks[i].NotRun {
			p.check(&r.Checks[i])
		}
	}
	require.NoError(t, p.sharedReport(r))
	return b.String()
}
