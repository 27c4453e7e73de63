package sched_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Single rules of the policies, each by itself. docs/scheduling.md has the list.

// TestNoClock (R-A2): the package has no clock, no goroutine, no lock and no randomness: its
// decisions follow from its inputs.
func TestNoClock(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	looked := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		looked++
		tree, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		require.NoError(t, err)
		for _, i := range tree.Imports {
			require.Contains(t, []string{`"errors"`, `"fmt"`, `"math"`, `"slices"`, `"strings"`, `"time"`}, i.Path.Value, f.Name())
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" {
					require.NotContains(t, []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, n.Sel.Name, f.Name())
				}
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				require.Fail(t, "a goroutine or a channel", f.Name())
			}
			return true
		})
	}
	require.Greater(t, looked, 10)
}

// twoGroups are guests with a channel each, that always have n requests.
func twoGroups(t *testing.T, c sched.Config, a, b time.Duration) (k *fixture, groups [2]sched.ID, top func(n int)) {
	k = newFixture(t, c)
	for i := range groups {
		groups[i] = k.node(t, sched.Card, sched.NodeConfig{})
		k.channel(t, groups[i], 0)
	}
	k.lengths = func(ch sched.ID, _ int) time.Duration {
		if ch == k.channels[0] {
			return a
		}
		return b
	}
	return k, groups, func(n int) {
		for _, ch := range k.channels {
			k.submit(ch, n-(k.submitted[ch]-k.done[ch]))
		}
	}
}

// sample runs until the group has been sampled once, and returns how many of its requests
// the sample saw, how long it was, and its mean length.
func sample(t *testing.T, b *fixture, group sched.ID, during func()) (saw int, took, each time.Duration) {
	t.Helper()
	began := time.Duration(0)
	for b.now < 10*time.Second {
		during()
		b.drain()
		st := b.s.Freeze()
		d := &st.Engines[0].DFQ
		here := b.s.Sampling(0) == group
		switch {
		case here && began == 0:
			began = d.From
		case here || began == 0:
		case d.Phase == sched.Settle && d.From == began:
			saw, took = d.Done, b.now-began
		default: // it is over
			return saw, took, st.Nodes[uint32(group)].Lanes[0].Mean
		}
		if here {
			saw, took = d.Done, b.now-began
		}
		b.step(b.now + 10*time.Second)
	}
	require.Fail(t, "it is not sampled")
	return 0, 0, 0
}

// TestSliceLength (R-D2): a slice ends after T or 96 requests, but not before five are
// done, unless 4T have passed.
func TestSliceLength(t *testing.T) {
	for length, want := range map[time.Duration]struct {
		saw  int
		took time.Duration
	}{
		10 * us:   {96, 960 * us},
		100 * us:  {50, 5 * ms},
		2700 * us: {5, 13500 * us},
		8 * ms:    {3, 24 * ms}, // the one that is under way when 4T have passed
	} {
		c := sched.Default()
		c.Policy = sched.DFQ
		b, groups, top := twoGroups(t, c, length, length)
		saw, took, each := sample(t, b, groups[0], func() { top(200) })
		require.InDelta(t, want.saw, saw, 1, "%v", length)
		require.InDelta(t, float64(want.took), float64(took), float64(length), "%v", length)
		require.Equal(t, length, each)
	}
}

// TestSampleCountsGatedWork (R-A7): submissions while a group is gated count in the
// group's next sample, and waiting does not lengthen a request.
func TestSampleCountsGatedWork(t *testing.T) {
	c := sched.Default()
	c.Policy = sched.DFQ
	b, groups, top := twoGroups(t, c, ms, 500*us)
	top(4)
	const k = 6
	busy, gated := b.channels[0], b.channels[1]
	filled := false
	saw, _, each := sample(t, b, groups[1], func() {
		b.submit(busy, 4-(b.submitted[busy]-b.done[busy]))
		switch {
		case filled:
		case b.s.Sampling(0) == groups[0]:
			filled = true
			require.Equal(t, b.done[gated], b.forwarded[gated], "it is gated")
			b.submit(gated, k-(b.submitted[gated]-b.forwarded[gated]))
		default:
			b.submit(gated, 2-(b.submitted[gated]-b.done[gated]))
		}
	})
	require.Equal(t, k, saw)
	require.Equal(t, 500*us, each)
}

// TestOverrunIsRepaid (4.4): a node that overruns skips as many turns as the overrun had
// slices.
func TestOverrunIsRepaid(t *testing.T) {
	for _, long := range []time.Duration{20 * ms, 100 * ms, 300 * ms} {
		c := sched.Default()
		c.Policy = sched.Timeslice
		b, groups, top := twoGroups(t, c, long, ms)
		top(4)
		b.run(b.now + 10*time.Second)
		require.Positive(t, b.done[b.channels[0]])
		// From the end of one long request to the begin of the next.
		var ended, gap time.Duration
		done := b.done[b.channels[0]]
		for range 100_000 {
			top(4)
			b.drain()
			if on := b.card[0]; ended > 0 && len(on) > 0 && on[0].ch == b.channels[0] {
				if gap = b.now - ended; gap > 0 {
					break
				}
				ended, done = 0, b.done[b.channels[0]] // it had some of its slice left
			}
			b.step(b.now + time.Second)
			if b.done[b.channels[0]] > done && ended == 0 {
				ended = b.now
			}
		}
		slices := float64(gap) / float64(c.Timeslice.Slice)
		over := float64(long-c.Timeslice.Slice) / float64(c.Timeslice.Slice)
		require.InDelta(t, over+1, slices, 1.1, "%v: %v", long, gap)
		a, _ := b.s.Account(b.now, groups[0], 0)
		require.Positive(t, a.Overrun)
	}
}

// TestIdleHolder (4.4): the card waits for an idle holder for a moment, and no longer.
func TestIdleHolder(t *testing.T) {
	c := sched.Default()
	c.Policy = sched.Timeslice
	b, _, _ := twoGroups(t, c, ms, ms)
	b.submit(b.channels[0], 1)
	b.drain()
	b.submit(b.channels[1], 1)
	b.run(40 * ms)
	require.Zero(t, len(b.card[0]))
	a, _ := b.s.Account(b.now, b.channels[1], 0)
	require.Equal(t, ms+500*us+ms, a.Last) // the first, the wait, its own
}

// TestBandWaitEnds (4.3): the card is kept for at most the grace period, and no longer once
// the favoured node has work.
func TestBandWaitEnds(t *testing.T) {
	for _, back := range []time.Duration{0, 200 * us} {
		c := sched.Default()
		c.Policy, c.Ahead = sched.Band, 0
		b, _, _ := twoGroups(t, c, 100*us, 4*ms)
		short, long := b.channels[0], b.channels[1]
		waits := 0
		for b.now < time.Second {
			b.submit(long, 2-(b.submitted[long]-b.done[long]))
			if b.submitted[short] == b.done[short] {
				b.submit(short, 1)
			}
			b.drain()
			for len(b.card[0]) > 0 && !(b.card[0][0].ch == short && b.submitted[short]-b.done[short] == 1) {
				b.step(b.now + time.Second)
				b.submit(long, 2-(b.submitted[long]-b.done[long]))
				b.drain()
			}
			b.step(b.now + time.Second) // the short one ends; it has no other
			ended := b.now
			b.drain()
			if len(b.card[0]) > 0 {
				continue
			}
			waits++
			if back > 0 {
				b.now += back
				b.submit(short, 1)
				b.drain()
				require.Len(t, b.card[0], 1)
				require.Equal(t, short, b.card[0][0].ch, "it is there, and the card is kept on")
				continue
			}
			for len(b.card[0]) == 0 {
				require.True(t, b.step(time.Hour))
				b.drain()
			}
			require.Equal(t, long, b.card[0][0].ch)
			require.LessOrEqual(t, b.now-ended, c.Band.Grace)
		}
		require.Greater(t, waits, 5, "the card was never kept, so nothing is shown")
	}
}
