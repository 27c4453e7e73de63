package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched/model"
)

// TestFetchPointerMismeasures: the model's fetch pointer runs ahead of what is done,
// as the hardware's. Charges by it are wrong, charges by the ends are right.
func TestFetchPointerMismeasures(t *testing.T) {
	c := model.NewCard(1, 0)
	a, b := c.AddChannel(), c.AddChannel()
	for i := range 200 {
		c.Push(0, a, model.Request{Busy: time.Duration(100+i) * us})
		c.Push(0, b, model.Request{Busy: 3 * ms})
	}
	require.Equal(t, 4, c.Fetched(a), "fetched, and nothing done")
	var byEnd, byFetch model.Meter
	var worked, right [2]time.Duration
	var wrong [2]time.Duration
	for now := c.Next(); c.Queued(a) > 4; now = c.Next() {
		for _, d := range c.Step(now) {
			worked[d.Channel] += d.Done - d.Began
			right[d.Channel] += byEnd.Busy(0, d.Came, d.Done)
			// Four entries before this one is done its fetch is seen.
			wrong[d.Channel] += byFetch.Busy(0, d.Came, max(d.Came, d.Began-time.Duration(c.Fetched(d.Channel))*3*ms))
		}
	}
	for ch := range worked {
		require.Equal(t, worked[ch], right[ch])
	}
	require.Greater(t, (wrong[0] - worked[0]).Abs(), worked[0]/2)
}

// TestCardTakesTurns: one request of each channel, for any lengths, none interrupted,
// engines in parallel.
func TestCardTakesTurns(t *testing.T) {
	c := model.NewCard(2, 1)
	a, b, copies := c.AddChannel(), c.AddChannel(), c.AddChannel()
	for range 3 {
		c.Push(0, a, model.Request{Busy: 5 * ms})
		c.Push(0, b, model.Request{Busy: ms})
		c.Push(0, copies, model.Request{Engine: 1, Busy: 4 * ms})
	}
	var order []int
	for now := c.Next(); now < time.Hour; now = c.Next() {
		for _, d := range c.Step(now) {
			if d.Engine == 0 {
				order = append(order, d.Channel)
			}
		}
	}
	require.Equal(t, []int{a, b, a, b, a, b}, order)
	require.Equal(t, 18*ms, c.Busy(0))
	require.Equal(t, 12*ms, c.Busy(1))

	// One that waits for a semaphore does not block others.
	c.Push(18*ms, a, model.Request{Busy: ms, Wait: 1, Value: 1})
	c.Push(18*ms, b, model.Request{Busy: ms, Signal: 1})
	require.True(t, c.Stalled(a))
	c.Step(c.Next())
	require.False(t, c.Stalled(a))
	require.Equal(t, a, c.Running(0))
	ran, on := c.Abort(19*ms+300*us, a)
	require.Equal(t, 300*us, ran)
	require.Equal(t, 0, on)
	require.Zero(t, c.Queued(a))
}
