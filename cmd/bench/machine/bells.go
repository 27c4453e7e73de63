package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// bells rings doorbells of one channel, by the guest's clock. The processor time is that of
// this process, which serves, and does nothing else meanwhile.
func (l *life) bells(ctx context.Context) error {
	if err := l.vm.Agent().Call(ctx, proto.CmdBellsOpen, nil, nil); err != nil {
		return err
	}
	n := l.pick(100, 400)
	for _, s := range l.plan.Schedulers {
		if s.Ahead != nil {
			if err := l.bed.Ahead(*s.Ahead); err != nil {
				return err
			}
		}
		if err := l.take(s.Name, s.Parameters(n), func(t *scene.Take) error { return l.ringAll(ctx, t, n) }); err != nil {
			return err
		}
	}
	return l.vm.Agent().Call(ctx, proto.CmdBellsClose, nil, nil)
}

func (l *life) ringAll(ctx context.Context, t *scene.Take, n int) error {
	ring := func(how string) (r proto.BellsResult, used time.Duration, err error) {
		used, err = t.ServerTime(how, func() error {
			return l.vm.Agent().Call(ctx, proto.CmdBells, proto.BellsArgs{How: how, Count: n}, &r)
		})
		if err == nil && r.Count < 1 {
			err = fmt.Errorf("the guest rang by %q %d times, of %d", how, r.Count, n)
		}
		return r, used, err
	}
	r, used, err := ring(proto.BellStore)
	if err != nil {
		return err
	}
	t.Figure(report.BellStore, report.Nanoseconds, r.NS)
	t.Figure("store p99", report.Nanoseconds, float64(r.P99NS))
	scene.Each(t, "server, a store", used, r.Count)

	looks := t.Bed.Looks()
	if r, used, err = ring(proto.BellLaunch); err != nil {
		return err
	}
	t.Figure(report.BellLaunch, report.Nanoseconds, float64(r.P50NS))
	t.Figure("launch p99", report.Nanoseconds, float64(r.P99NS))
	t.Figure(report.BellWork, report.Nanoseconds, float64(r.WorkP50NS))
	t.Figure("work p99", report.Nanoseconds, float64(r.WorkP99NS))
	scene.Each(t, "server, a launch", used, r.Count)
	scene.Woken(t, looks, r.Count)

	if r, _, err = ring(proto.BellBehind); err != nil {
		return err
	}
	t.Figure("one of 8", report.Nanoseconds, r.NS)
	return nil
}
