package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
)

// fakePrefix begins the name of a library that makes the process one of those that do what they must not.
const fakePrefix = "fake-"

// fakes are what such a process does instead of a step.
var fakes = map[string]func(c *jit.Conn, s *jit.Shared, image *state.Image) *jit.Message{
	"verdict": func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { return &jit.Message{Kind: jit.Ended, A: 99} },
	"slot": func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message {
		return &jit.Message{Kind: jit.Ended, A: uint64(jit.Stuck), B: 1 << 40}
	},
	"kind":     func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { return &jit.Message{Kind: 77} },
	"setup":    func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { return &jit.Message{Kind: jit.Hello} },
	"exit":     func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { os.Exit(3); return nil },
	"hang":     func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message { select {} },
	"previous": ended(func(s *jit.Shared, _ *state.Image) { s.Work.Next = 0 }),
	"depth":    ended(func(_ *jit.Shared, m *state.Image) { m.All[0].Depth = 1 << 31 }),
	"kinds":    ended(func(_ *jit.Shared, m *state.Image) { m.All[0].Depth, m.All[0].Stack[0].Kind = 1, 1000 }),
	"barrier":  ended(func(_ *jit.Shared, m *state.Image) { m.All[0].Wait = 1 << 20 }),
	"turn":     ended(func(_ *jit.Shared, m *state.Image) { m.Turn = 1 << 30 }),
	"locks":    ended(func(_ *jit.Shared, m *state.Image) { m.Locks = 1 << 30 }),
	"block":    ended(func(_ *jit.Shared, m *state.Image) { m.ID[0] = 1 << 30 }),
	"flood": func(c *jit.Conn, _ *jit.Shared, _ *state.Image) *jit.Message {
		for {
			if c.Send(&jit.Message{Kind: jit.Ask, A: ^uint64(0)}, nil) != nil {
				return &jit.Message{Kind: jit.Ended}
			}
		}
	},
}

// ended makes a block, and then changes what the server reads.
func ended(change func(*jit.Shared, *state.Image)) func(*jit.Conn, *jit.Shared, *state.Image) *jit.Message {
	return func(_ *jit.Conn, s *jit.Shared, m *state.Image) *jit.Message {
		m.Begun = 1
		for i := range m.All {
			m.All[i] = state.Warp{Active: ^uint32(0), Wait: -1}
		}
		change(s, m)
		return &jit.Message{Kind: jit.Ended}
	}
}

// fake is a process that does what it must not.
func fake(mode string) int {
	c := jit.NewConn(socketFD)
	if err := c.Send(&jit.Message{Kind: jit.Hello, A: jit.Version}, nil); err != nil {
		return 1
	}
	var s *jit.Shared
	for {
		var m jit.Message
		f, err := c.Receive(&m)
		if err != nil {
			return 0
		}
		if m.Kind == jit.Setup {
			if s, err = jit.OpenShared(f); err != nil {
				return 1
			}
			continue
		}
		image, err := state.New(s.Slot(0), 2, 256)
		if err != nil {
			return 1
		}
		s.Began.Store(1)
		if c.Send(fakes[mode](c, s, image), nil) != nil {
			return 0
		}
	}
}

// A process that answers nonsense costs its guest the launch, and the server one line and one process.
func TestNonsense(t *testing.T) {
	for mode := range fakes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, jit.Config{Library: fakePrefix + mode, Always: true}, count)
			r.job.Grid.Next = 1
			start := time.Now()
			out := r.native.Run(r.job)
			require.Less(t, time.Since(start), 10*time.Second)
			require.Equal(t, engine.NativeFault, out.Outcome)
			require.ErrorContains(t, out.Fault, "lost with its process")
			require.Len(t, r.lines(), 1)
			require.Contains(t, r.lines()[0], "interpreted")
			require.Equal(t, engine.NotNative, r.native.Run(r.job).Outcome)
			require.EqualValues(t, 1, r.compiler.Stats.Lost.Load())
		})
	}
}
