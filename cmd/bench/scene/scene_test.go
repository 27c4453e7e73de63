package scene_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/tests/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rows(t *testing.T) []setup.Row {
	t.Helper()
	r, err := setup.Choose([]string{report.PassThrough, setup.Naive, "lazy"})
	require.NoError(t, err)
	return r
}

// state counts how often it was closed.
type state struct{ closed int }

func (s *state) Close() error { s.closed++; return nil }

// The set-ups take turns, each round begins one further on, and a guest of the
// turn before has left before the next one comes.
func TestTurns(t *testing.T) {
	var order []string
	c := &scene.Case{Name: "c", Parameters: map[string]string{"n": "1"}, Shape: setup.Common, Run: func(ctx context.Context, k *scene.Take) error {
		order = append(order, k.Bed.Row.Name)
		g, err := k.Seat().Attach(ctx, guest.Config{})
		if err != nil {
			return err
		}
		var b [4]byte
		if err := g.Raw().Read(0, 0, b[:]); err != nil { // what was posted before has been handled
			return err
		}
		err = k.Phase("read", func() error {
			for range 7 {
				if err := g.Raw().Read(0, 0, b[:]); err != nil {
					return err
				}
			}
			return nil
		})
		k.Figure("turn", report.Number, float64(len(order)))
		return errors.Join(err, g.Close())
	}}
	s := &scene.Scenario{Scenario: report.Scenario{Name: "s"}}
	results, err := scene.Turns(t.Context(), report.Run{Repeat: 4}, s, c, rows(t))
	require.NoError(t, err)
	require.Equal(t, []string{
		"pass-through", "naive", "lazy", "naive", "lazy", "pass-through", "lazy", "pass-through", "naive", "pass-through", "naive", "lazy",
	}, order)
	require.Len(t, results, 3)
	for _, r := range results {
		require.Len(t, r.Total.NS.Values, 4)
		require.Equal(t, 7.0, r.Total.Counts[report.Reads].Median, "the accesses of the phase, and no other")
		require.Zero(t, r.Total.Counts[report.Writes].Max)
		require.Equal(t, 4, r.Ratio.N)
		require.Equal(t, report.InProcess, r.Where)
	}
	require.Equal(t, []float64{1, 6, 8, 10}, results[0].Figures[0].Value.Values)
}

// What is prepared is made once for each set-up, and ends with the case, also if
// a turn fails.
func TestPrepared(t *testing.T) {
	made := []*state{}
	broken := errors.New("broken")
	c := &scene.Case{
		Shape: setup.Common, Virtual: true,
		Prepare: func(context.Context, *setup.Bed) (io.Closer, error) {
			made = append(made, new(state))
			return made[len(made)-1], nil
		},
		Run: func(_ context.Context, k *scene.Take) error {
			require.Same(t, map[string]*state{setup.Naive: made[0], "lazy": made[1]}[k.Bed.Row.Name], k.State)
			return k.Phase("x", func() error { time.Sleep(time.Millisecond); return nil })
		},
	}
	s := &scene.Scenario{}
	results, err := scene.Turns(t.Context(), report.Run{Repeat: 2}, s, c, rows(t))
	require.NoError(t, err)
	require.Len(t, results, 2, "the whole card cannot be shared")
	require.Nil(t, results[0].Ratio, "there is no baseline")
	require.GreaterOrEqual(t, results[0].Total.NS.Min, 1e6)

	c.Run = func(context.Context, *scene.Take) error { return broken }
	_, err = scene.Turns(t.Context(), report.Run{Repeat: 2}, s, c, rows(t))
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "naive: broken")
	require.Len(t, made, 4)
	for _, m := range made {
		require.Equal(t, 1, m.closed)
	}
}

// What is used while nobody has anything to do is a share of what a processor could do,
// and is seen: who works meanwhile makes it larger.
func TestIdle(t *testing.T) {
	row, err := setup.Choose([]string{"naive"})
	require.NoError(t, err)
	b, err := setup.Open(row[0], setup.Common)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	k := &scene.Take{Bed: b}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	busy, err := k.Idle(t.Context(), 200*time.Millisecond)
	close(stop)
	<-stopped
	require.NoError(t, err)
	idle, err := k.Idle(t.Context(), 200*time.Millisecond)
	require.NoError(t, err)
	require.Less(t, idle, busy)
	require.Equal(t, "idle", k.Last().Name)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = k.Idle(ctx, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
}

// TestPrepareFails: what could not be prepared is not closed, whatever came with the error: a
// typed nil is no nil.
func TestPrepareFails(t *testing.T) {
	stop := errors.New("it was ended")
	c := &scene.Case{Name: "c", Shape: setup.Common, Prepare: func(context.Context, *setup.Bed) (io.Closer, error) { return (*state)(nil), stop }}
	_, err := scene.Turns(t.Context(), report.Run{Repeat: 1}, &scene.Scenario{Scenario: report.Scenario{Name: "s"}}, c, rows(t))
	require.ErrorIs(t, err, stop)
}
