package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestMain lets the test's program be the attacker.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == attackCommand {
		main()
	}
	os.Exit(m.Run())
}

// TestMeasure: an attack on a server that does not protect from it is measured, and fails. A
// scheduler that never pauses a request has the victim wait for all of a request of a minute.
func TestMeasure(t *testing.T) {
	scale.ReleaseOnly(t)
	o := options{only: []string{"long-request"}, policy: "fifo", rounds: 1, window: 500 * time.Millisecond}
	require.EqualError(t, o.run(t.Context(), io.Discard), "the victim notices 1 of 1 attacks")
}

// TestVerdicts: each bound is checked, and nothing else fails.
func TestVerdicts(t *testing.T) {
	calm := func() *run { // the victim notices nothing
		return &run{
			attack: &attack{name: "a"}, traps: 1, control: time.Millisecond, end: time.Second, share: &share{44, 42},
			work: [len(ops)]ratios{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
		}
	}
	for want, change := range map[string]func(r *run){
		"":                                     func(*run) {},
		"copies: p99 is 3.0 times as long":     func(r *run) { r.work[2].p99 = 3 },
		"3.0 times as many traps":              func(r *run) { r.traps = 3 },
		"40 % of the engine, of at least 41":   func(r *run) { r.share.attacked = 40 },
		"46 % of the engine, of at least 47":   func(r *run) { *r.share = share{70, 46} },
		"the control socket answers in 101ms":  func(r *run) { r.control = 101 * time.Millisecond },
		"SIGTERM ends the server in 2.001s":    func(r *run) { r.end = 2001 * time.Millisecond },
		"the server ended: one line; and more": func(r *run) { r.fail("the server ended: one line\nand more") },
	} {
		r := calm()
		change(r)
		r.judge()
		require.Equal(t, want, strings.Join(r.failed, "|"))
		var b strings.Builder
		require.NoError(t, write(&b, []*run{r}))
		require.Equal(t, want == "", strings.Contains(b.String(), "withstood"))
		require.Contains(t, b.String(), want)
	}
}
