package shim

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestGL: random textures, samplers and images give on our card what they give on Mesa's renderer, to
// the precision of a filter's weights; a card that does nothing gives something else. Every
// other launch of textures is indirect.
func TestGL(t *testing.T) {
	eachGL(t, func(t *testing.T, program glRun) {
		run := func(seed int, device string, cfg Config) []string {
			return strings.Split(strings.ReplaceAll(program(seed, device, cfg), "-nan", "nan"), "\n")
		}
		for seed := range 5 {
			checkGL(t, run(seed, "llvmpipe", Config{}), run(seed, OurCard, Config{}))
		}
		want, idle := run(0, "llvmpipe", Config{}), run(0, OurCard, Config{Idle: true})
		different := 0
		for i := range want {
			if !sameNumbers(want[i], idle[i]) {
				different++
			}
		}
		require.Greater(t, different, len(want)/3)
	})
}

// glRun runs a program, and returns what it prints.
type glRun func(seed int, device string, cfg Config) string

// eachGL tests each program of programs/gl.
func eachGL(t *testing.T, test func(t *testing.T, run glRun)) {
	scale.ReleaseOnly(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	host := newTestHost(t, ctx, (*fetch.Cache).Mesa, "25")
	for _, name := range []string{"textures", "images"} {
		t.Run(name, func(t *testing.T) {
			program, err := host.Compile(ctx, "programs/gl/"+name+".c")
			require.NoError(t, err)
			test(t, func(seed int, device string, cfg Config) string {
				var output bytes.Buffer
				_, err := host.Run(ctx, Program{Argv: []string{program, "100", fmt.Sprint(seed)}, Device: device, Config: cfg, Output: &output, Errors: &output})
				require.NoError(t, err, "%s", &output)
				return output.String()
			})
		})
	}
}

func checkGL(t *testing.T, want, got []string) {
	require.Len(t, got, len(want))
	what := ""
	for i, line := range want {
		if strings.HasPrefix(line, "case") {
			what = line
		}
		require.True(t, sameNumbers(line, got[i]), "%s: %s, want %s", what, got[i], line)
	}
}

// sameNumbers compares lines of four numbers; others must be equal.
func sameNumbers(a, b string) bool {
	var x, y [4]float64
	if _, err := fmt.Sscan(a, &x[0], &x[1], &x[2], &x[3]); err != nil {
		return a == b
	}
	if _, err := fmt.Sscan(b, &y[0], &y[1], &y[2], &y[3]); err != nil {
		return false
	}
	for i := range x {
		if math.IsInf(x[i], 0) || math.IsInf(y[i], 0) {
			if x[i] != y[i] {
				return false
			}
			continue // their difference is not a number
		}
		if math.IsNaN(x[i]) != math.IsNaN(y[i]) || math.Abs(x[i]-y[i]) > 0.012*max(1, math.Abs(x[i])) {
			return false
		}
	}
	return true
}
