package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSteps: a step that fails, panics or hangs loses neither the others nor its figures.
func TestSteps(t *testing.T) {
	t.Chdir(t.TempDir())
	r := &run{ctx: t.Context(), only: []string{"a", "b/c"}, grace: time.Millisecond}
	hang := make(chan struct{})
	defer close(hang)
	for _, c := range []struct {
		step, verdict string // "": not made
		err           error
		do            func()
	}{
		{"a/one", ok, nil, func() {}},
		{"a/two", failed, errors.New("why"), func() {}},
		{"b", refused, fmt.Errorf("%w: it has no such engine", errRefused), func() {}},
		{"b/c", failed, nil, func() { panic("bad") }},
		{"b/d", "", nil, func() { panic("bad") }},
		{"aa", "", nil, func() { panic("bad") }},
		{"a/three", hung, nil, func() { <-hang }},
		{"a/four", ok, nil, func() {}},
	} {
		n := len(r.results.Steps)
		good := r.step(c.step, 10*time.Millisecond, func(_ context.Context, s *result) error {
			s.note("done", 1, "part")
			c.do()
			return c.err
		})
		require.Equal(t, c.verdict != failed && c.verdict != hung, good, c.step)
		if c.verdict == "" {
			require.Len(t, r.results.Steps, n, c.step)
			continue
		}
		s := r.results.Steps[n]
		require.Equal(t, c.verdict, s.Verdict, c.step)
		require.Equal(t, "done 1 part", s.figures(), c.step)
	}
	require.EqualError(t, r.results.failed(), "failed: a/two, b/c, a/three")
	data, err := os.ReadFile("results.json")
	require.NoError(t, err)
	var p report
	require.NoError(t, json.Unmarshal(data, &p))
	require.Len(t, p.Steps, 6)
}
