package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched/model"
)

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
