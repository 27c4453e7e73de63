package gpu

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

const fakeGrain = 4096 // the interpreter is slow

func throttleArgs(t *testing.T, l throttle.Load) proto.ThrottleArgs {
	t.Helper()
	raw, err := json.Marshal(l)
	require.NoError(t, err)
	return proto.ThrottleArgs{Load: raw, GrainBytes: fakeGrain, GrainNS: int64(time.Millisecond), Seed: 7}
}

// TestThrottle: a guest makes the requests that the description's source draws, as
// many launches as they are long, copies among them, and its data is looked at.
func TestThrottle(t *testing.T) {
	l := throttle.Load{Busy: time.Millisecond, BusyMost: 5 * time.Millisecond, Burst: 3, Ahead: 2, Copies: 300, CopyBusy: 2 * time.Millisecond, Requests: 40}
	g := fake(t, "6.12")
	args := throttleArgs(t, l)
	args.Clients = 2
	r, err := g.env().StartThrottle(args)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.Totals().Done == 80 }, time.Minute, time.Millisecond)
	got := r.Stop()

	want := proto.ThrottleTotals{Clients: 2, Lives: 2, Submitted: 80, Done: 80}
	require.NoError(t, l.Check(""))
	for i := range uint64(2) {
		s := throttle.NewSource(l, args.Seed+i<<32)
		for q, ok := s.Next(); ok; q, ok = s.Next() {
			want.Launches += uint64((q.Busy + time.Millisecond/2) / time.Millisecond)
			if q.Copy {
				want.Copies++
			}
		}
	}
	require.Equal(t, want, got)
	require.NotZero(t, got.Copies)
	require.Less(t, got.Copies, uint64(80))
}

// TestThrottleOneLaunch: as long as nobody knows how long a launch takes, a request is one.
func TestThrottleOneLaunch(t *testing.T) {
	args := throttleArgs(t, throttle.Load{Busy: time.Second, Requests: 9})
	args.GrainNS = 0
	r, err := fake(t, "6.12").env().StartThrottle(args)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.Totals().Done == 9 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 9, r.Stop().Launches)
}

// TestThrottleLives: a process that has a life is followed by another; all stop when told.
func TestThrottleLives(t *testing.T) {
	r, err := fake(t, "6.12").env().StartThrottle(throttleArgs(t, throttle.Load{
		Busy: time.Millisecond, Think: time.Millisecond, Life: 10 * time.Millisecond, Start: time.Millisecond,
	}))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.Totals().Lives > 3 }, time.Minute, time.Millisecond)
	got := r.Stop()
	require.Empty(t, got.Error)
	require.Equal(t, got.Submitted, got.Done)
	require.Zero(t, got.Wrong)
}

// TestThrottleLifeWithoutLaunch: a process that is at its end before it has had a processor
// is held to no data, though others before it have made some.
func TestThrottleLifeWithoutLaunch(t *testing.T) {
	e := fake(t, "6.12").env()
	r, err := e.StartThrottle(throttleArgs(t, throttle.Load{Busy: time.Millisecond, Requests: 3}))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.Totals().Done == 3 }, time.Minute, time.Millisecond)
	require.NotZero(t, r.Stop().Launches)
	late, err := r.newRun(e, 8)
	require.NoError(t, err)
	require.NoError(t, late.verify())
	require.NoError(t, late.Close())
	require.Zero(t, r.Totals().Wrong)
}

// TestThrottleStops: what is to stop by itself does, and has done something until then, if
// it had a processor.
func TestThrottleStops(t *testing.T) {
	for try := 1; ; try++ {
		r, err := fake(t, "6.12").env().StartThrottle(throttleArgs(t, throttle.Load{Busy: time.Millisecond, Stop: 300 * time.Millisecond}))
		require.NoError(t, err)
		done := make(chan proto.ThrottleTotals)
		go func() { r.wg.Wait(); done <- r.Totals() }()
		select {
		case got := <-done:
			r.Stop()
			if got.Done > 0 {
				return
			}
			require.Less(t, try, 5, "%+v", got)
		case <-time.After(time.Minute):
			r.Stop()
			<-done
			t.Fatal("it goes on")
		}
	}
}

// TestThrottleIsHeldToAccount: an engine that does nothing is found out, and so is a
// channel that dies.
func TestThrottleIsHeldToAccount(t *testing.T) {
	g := fake(t, "6.12")
	env := g.env()
	r, err := env.StartThrottle(throttleArgs(t, throttle.Load{Busy: time.Millisecond}))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.Totals().Done > 3 }, time.Minute, time.Millisecond)
	g.mu.Lock()
	for _, c := range g.channels {
		c.killed = true
	}
	g.mu.Unlock()
	require.Eventually(t, func() bool { return r.Totals().Error != "" }, time.Minute, time.Millisecond)
	r.Stop()

	still := fake(t, "6.12")
	still.noop = true
	if r, err = still.env().StartThrottle(throttleArgs(t, throttle.Load{Busy: time.Millisecond, Requests: 5})); err == nil {
		require.Eventually(t, func() bool { return r.Totals().Done == 5 }, time.Minute, time.Millisecond)
		require.EqualValues(t, 1, r.Stop().Wrong)
	}
}

func TestThrottleRefuses(t *testing.T) {
	e := fake(t, "6.12").env()
	for want, change := range map[string]func(a *proto.ThrottleArgs, l *throttle.Load){
		"load.busy: 0s":        func(_ *proto.ThrottleArgs, l *throttle.Load) { l.Busy = 0 },
		"load.alone":           func(_ *proto.ThrottleArgs, l *throttle.Load) { l.Alone = time.Millisecond },
		"load.burst: 600":      func(_ *proto.ThrottleArgs, l *throttle.Load) { l.Burst = 600 },
		"at most 4096 fit":     func(_ *proto.ThrottleArgs, l *throttle.Load) { l.Busy = 30 * time.Second },
		"grain_bytes: 5000":    func(a *proto.ThrottleArgs, _ *throttle.Load) { a.GrainBytes = 5000 },
		"grain_bytes: 9437184": func(a *proto.ThrottleArgs, _ *throttle.Load) { a.GrainBytes = 9 << 20 },
	} {
		l := throttle.Load{Busy: time.Millisecond}
		a := proto.ThrottleArgs{GrainBytes: fakeGrain, GrainNS: int64(time.Millisecond)}
		change(&a, &l)
		a.Load = throttleArgs(t, l).Load
		_, err := e.StartThrottle(a)
		require.ErrorContains(t, err, want)
	}
	_, err := e.StartThrottle(proto.ThrottleArgs{Load: json.RawMessage(`{"busy":1000,"buzy":1}`)})
	require.ErrorContains(t, err, "buzy")
	_, err = e.StartThrottle(proto.ThrottleArgs{})
	require.ErrorContains(t, err, "load")
}
