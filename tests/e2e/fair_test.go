package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// The scheduler's effect on real guests is observed as a user would: on a separate server
// with a configuration file, with stock kernels, through the ledger of the control socket.

const (
	fairVRAM  = "256MiB"
	fairLimit = time.Second // of one request
	fairGrace = 500 * time.Millisecond
)

var fairConfig = `
control: control.sock
card: {vram: 1GiB}
scheduler: {policy: credit, watchdog: {grace: ` + fairGrace.String() + `}}
limits: {request: ` + fairLimit.String() + `}
gpus:
  - {name: a, socket: a.sock, vram: ` + fairVRAM + `}
  - {name: b, socket: b.sock, vram: ` + fairVRAM + `}
`

// fairNames are the guests'.
var fairNames = []string{"a", "b"}

// serveFair starts the server as a process of its own, which ends with the test.
func serveFair(t *testing.T) *testserver.Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "umbra-") // t.TempDir's paths are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	bin, err := testserver.BuildUmbra(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, testserver.ConfigFile), []byte(fairConfig), 0o600))
	s, err := testserver.StartProcess(t.Context(), bin, dir)
	require.NoError(t, err)
	t.Cleanup(func() {
		defer s.Kill()
		if t.Failed() {
			t.Logf("the server said: %s", s.Log())
		}
		require.NoError(t, s.Stop(context.WithoutCancel(t.Context())), s.Log())
	})
	return s
}

// fair is two guests and their server.
type fair struct {
	*api.Client
	t     *testing.T
	ctx   context.Context
	beds  []*fixture
	grain time.Duration // that a launch of a throttle's keeps the card busy

	server int // its process
}

// books is the server's ledger at a time.
type books struct {
	at      time.Time
	answer  time.Duration // that the server took to say it
	busy    []time.Duration
	waiting []int         // entries
	queued  time.Duration // that the server's threads have waited for a processor, all together
}

func (f *fair) look() (b books) {
	f.t.Helper()
	begin := time.Now()
	s, err := f.Status(f.ctx)
	require.NoError(f.t, err)
	b.at = time.Now()
	b.answer = b.at.Sub(begin)
	require.Len(f.t, s.GPUs, len(fairNames))
	for i, name := range fairNames {
		require.Equal(f.t, name, s.GPUs[i].Name)
		require.NotNil(f.t, s.GPUs[i].CardTime)
		b.busy = append(b.busy, api.Total(s.GPUs[i].CardTime.Engines).Busy)
		b.waiting = append(b.waiting, s.GPUs[i].CardTime.Waiting)
	}
	b.queued = queued(f.server)
	return b
}

// queued is how long the threads of a process have waited for a processor.
func queued(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range files {
		text, err := os.ReadFile(name)
		var ran, waited int64
		if _, scan := fmt.Sscan(string(text), &ran, &waited); err == nil && scan == nil { // a thread may have ended
			sum += time.Duration(waited)
		}
	}
	return sum
}

// watch looks every so often for a while.
func (f *fair) watch(d, every time.Duration) (all []books) {
	f.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		all = append(all, f.look())
	}
	return all
}

// throttle has a guest do a load, until the function that it returns is called.
func (f *fair) throttle(guest int, a proto.ThrottleArgs) (stop func() proto.ThrottleTotals) {
	f.t.Helper()
	b := f.beds[guest]
	a.GrainNS, a.Seed = f.grain.Nanoseconds(), uint64(guest)
	b.call(proto.CmdThrottle, a, nil)
	return func() (sum proto.ThrottleTotals) {
		f.t.Helper()
		b.call(proto.CmdThrottleStop, nil, &sum)
		require.Equal(f.t, sum.Submitted, sum.Done)
		return sum
	}
}

// calibrate measures a launch while no other guest uses the card.
func (f *fair) calibrate() {
	const requests = 400
	before := f.look()
	stop := f.throttle(0, proto.ThrottleArgs{BusyNS: time.Millisecond.Nanoseconds(), Burst: 50, Ahead: 2, Requests: requests})
	require.Eventually(f.t, func() bool {
		var sum proto.ThrottleTotals
		f.beds[0].call(proto.CmdThrottleTotals, nil, &sum)
		return sum.Done == requests
	}, time.Minute, 20*time.Millisecond)
	after := f.look()
	require.EqualValues(f.t, requests, stop().Launches)
	f.grain = (after.busy[0] - before.busy[0]) / requests
	require.Greater(f.t, f.grain, time.Microsecond)
	f.t.Logf("a launch keeps the card busy for %v", f.grain)
}

// contend keeps requests of the given lengths waiting in both guests. It returns the first
// one's share of the card's time while both had work, the largest difference between the two
// in a second, by their weights, and whether the machine was stalled in between.
func (f *fair) contend(lengths [2]time.Duration, weights [2]float64, d time.Duration) (share float64, unfair []float64, stalled bool) {
	f.t.Helper()
	var stops []func() proto.ThrottleTotals
	for i, l := range lengths {
		// A quarter of a second of work is on the way, in bursts of 32 ms: the card is not to
		// wait for a guest that does not run.
		burst := max(1, int(32*time.Millisecond/l))
		stops = append(stops, f.throttle(i, proto.ThrottleArgs{BusyNS: l.Nanoseconds(), Burst: burst, Ahead: 8}))
	}
	all := f.watch(d, 20*time.Millisecond)
	for i, stop := range stops {
		f.t.Logf("%s: %+v", fairNames[i], stop())
	}
	var sum, window [2]time.Duration
	var both, length time.Duration
	var odd stalls
	for i := 1; i < len(all); i++ {
		was, is := &all[i-1], &all[i]
		odd.see(was, is)
		stalled = stalled || odd.stalled()
		if slices.Contains(was.waiting, 0) || slices.Contains(is.waiting, 0) {
			window, length, odd = [2]time.Duration{}, 0, stalls{}
			continue
		}
		both += is.at.Sub(was.at)
		length += is.at.Sub(was.at)
		for g := range sum {
			sum[g] += is.busy[g] - was.busy[g]
			window[g] += is.busy[g] - was.busy[g]
		}
		if length >= time.Second {
			x, y := float64(window[0])/weights[0], float64(window[1])/weights[1]
			unfair = append(unfair, max(x-y, y-x)/(x+y))
			f.t.Logf("%v after the start, for %v: the card worked %v, unfairness %.3f; %+v", is.at.Sub(all[0].at).Round(time.Millisecond), length, window, unfair[len(unfair)-1], odd)
			window, length, odd = [2]time.Duration{}, 0, stalls{}
		}
	}
	f.t.Logf("both had work waiting for %v of %v; the card worked for %v of that: %v", both, d, sum[0]+sum[1], sum)
	require.Greater(f.t, both, d/3, "the guests do not keep the card busy, so this proves nothing")
	require.Greater(f.t, sum[0]+sum[1], d/10)
	return float64(sum[0]) / float64(sum[0]+sum[1]), unfair, stalled
}

// share compares the first guest's share with the weights. A wrong share on a stalled
// machine is measured again, some times: the card's clock advances during a stall, so the
// guest on the card is charged for it. A wrong share without a stall is an error.
func (f *fair) share(weight int) {
	f.t.Helper()
	want := 100 / float64(100+weight)
	for tries := 5; ; tries-- {
		share, unfair, stalled := f.contend([2]time.Duration{16 * time.Millisecond, time.Millisecond}, [2]float64{100, float64(weight)}, 12*time.Second)
		f.t.Logf("share %.1f %%, of %.1f; unfairness by seconds: %.3f; the machine was stalled: %v", 100*share, 100*want, unfair, stalled)
		slices.Sort(unfair)
		right := math.Abs(share-want) <= 0.03 && len(unfair) > 0 && unfair[len(unfair)/2] < 0.1
		if stalled && !right && tries > 1 {
			continue
		}
		require.InDelta(f.t, want, share, 0.03)
		require.NotEmpty(f.t, unfair)
		require.Less(f.t, unfair[len(unfair)/2], 0.1, "half of the seconds are worse")
		return
	}
}

// stalls may make a window unfair: a long time between two samples, or a server without a
// processor, because the software card's clock advances meanwhile.
type stalls struct {
	gap   time.Duration
	late  time.Duration // of all gaps, what is beyond a fifth of a second, but for the server's answer
	worst time.Duration // that the server's threads waited for a processor between two looks
}

func (o *stalls) see(was, is *books) {
	gap := is.at.Sub(was.at)
	o.gap = max(o.gap, gap)
	o.late += max(gap-is.answer-200*time.Millisecond, 0)
	o.worst = max(o.worst, is.queued-was.queued)
}

// stalled reports whether a stretch has an oddity.
func stalled(all []books) bool {
	var odd stalls
	for i := 1; i < len(all); i++ {
		odd.see(&all[i-1], &all[i])
	}
	return odd.stalled()
}

// stalled reports whether the sampling process was without a processor for nearly as long as
// the queued work of the guests lasts, or the server's threads together.
func (o *stalls) stalled() bool { return max(o.gap, o.worst) > 200*time.Millisecond }

// TestFairGuests: two stock kernels get shares by their weights, for any length of their
// requests. A request that does not end costs only its channel, and delays the other guest
// by no more than the limit.
func TestFairGuests(t *testing.T) {
	scale.ReleaseOnly(t)
	claim(t, 2)
	server := serveFair(t)
	ctx := deadline(t)
	f := &fair{Client: server.Client, t: t, ctx: ctx, server: server.Cmd.Process.Pid}
	for _, name := range fairNames {
		vm := boot(ctx, t, lab.Config{Kernel: "6.12", CPUs: 1, Memory: 512, Sockets: []string{filepath.Join(server.Dir, name+".sock")}})
		b := &fixture{PassThrough: &testserver.PassThrough{VM: vm}, t: t, ctx: ctx}
		b.modprobe()
		f.beds = append(f.beds, b)
	}
	step := func(name string, run func(f *fair)) {
		t.Helper()
		ok := t.Run(name, func(t *testing.T) {
			g := *f
			g.t, g.beds = t, nil
			for _, b := range f.beds {
				g.beds = append(g.beds, &fixture{PassThrough: b.PassThrough, t: t, ctx: ctx})
			}
			run(&g)
			f.grain = g.grain
		})
		if !ok {
			t.FailNow()
		}
	}
	step("calibration", (*fair).calibrate)
	for _, weight := range []int{100, 200} {
		_, err := server.Set(ctx, "b", api.SetRequest{Options: fmt.Sprintf("weight=%d", weight)})
		require.NoError(t, err)
		step(fmt.Sprintf("100 to %d", weight), func(f *fair) { f.share(weight) })
	}
	step("runaway", (*fair).runaway)
}

// runaway is a request that does not end, in the first guest.
func (f *fair) runaway() {
	stop := f.throttle(1, proto.ThrottleArgs{BusyNS: (4 * time.Millisecond).Nanoseconds(), Burst: 8, Ahead: 4})
	before := f.watch(2*time.Second, 50*time.Millisecond)
	var res proto.OffenceResult
	done := make(chan error, 1)
	go func() {
		// The command holds all of it against what is to be: the channel is dead to its
		// process, its kernel says so, another process of its guest copied on rightly, and so
		// did a new one.
		done <- f.beds[0].try(proto.CmdFault, proto.OffenceArgs{What: "runaway", TimeoutMS: 60_000}, &res)
	}()
	var during []books
	var err error
	for ended := false; !ended; {
		during = append(during, f.look())
		select {
		case err = <-done:
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	rate := func(all []books) float64 {
		first, last := all[0], all[len(all)-1]
		return float64(last.busy[1]-first.busy[1]) / float64(last.at.Sub(first.at))
	}
	// It soon has its time again. If the machine was stalled, measure again.
	after := f.watch(2*time.Second, 50*time.Millisecond)
	for tries := 4; tries > 0 && rate(after) <= rate(before)/2 && stalled(after); tries-- {
		f.t.Logf("the other guest has %.0f %% of the time, and had %.0f %%", 100*rate(after), 100*rate(before))
		after = f.watch(2*time.Second, 50*time.Millisecond)
	}
	f.t.Logf("the other guest: %+v", stop())
	f.t.Logf("killed %v after %v; the others of its guest: %+v", res.Killed, time.Duration(res.AfterNS), res.Background)
	for _, r := range res.Log {
		f.t.Logf("%s", r.Text)
	}
	require.NoError(f.t, err)
	require.True(f.t, res.Killed)
	require.True(f.t, res.FreshWorks)

	// The other guest had no time of the card while the request ran: at most the limit, the
	// time that the request may have afterwards, and the time to poll, abort and drain. Gaps
	// between samples count for the machine. The server's own time to answer counts, too.
	var stalled time.Duration
	var odd stalls
	since := during[0]
	for i := range during {
		b := &during[i]
		if i > 0 {
			odd.see(&during[i-1], b)
		}
		if b.busy[1] > since.busy[1] {
			since, odd = *b, stalls{}
		}
		stalled = max(stalled, b.at.Sub(since.at)-odd.late)
	}
	f.t.Logf("the other guest was stalled for %v; it had %.0f %% of the time before, %.0f %% afterwards", stalled, 100*rate(before), 100*rate(after))
	require.Greater(f.t, stalled, fairLimit/2, "the request delayed no guest, so this proves nothing")
	require.Less(f.t, stalled, fairLimit+fairGrace+time.Second)
	require.Greater(f.t, rate(after), rate(before)/2)

	s, err := f.Status(f.ctx)
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, s.GPUs[0].Counts["runaways"])
	require.Zero(f.t, s.GPUs[1].Counts["runaways"])
	for i, gpu := range s.GPUs {
		require.Empty(f.t, gpu.Quarantine, fairNames[i])
	}
}
