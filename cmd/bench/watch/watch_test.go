package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// calm is a row in which the victim notices nothing.
func calm() *Row {
	r := &Row{Attack: "a", Who: byGuest, Traps: 1, Control: time.Millisecond, End: time.Second, Share: &Share{Quiet: 44, Attacked: 42}}
	for _, op := range ops {
		same := Times{time.Millisecond, 2 * time.Millisecond}
		r.Work = append(r.Work, Work{Name: op.name, Quiet: same, Attacked: same, Median: 1, P99: 1, Noise: 1})
	}
	return r
}

// TestVerdicts: each bound is checked, and nothing else fails.
func TestVerdicts(t *testing.T) {
	for want, change := range map[string]func(r *Row){
		"":                                     func(*Row) {},
		"copies: p99 is 3.0 times as long":     func(r *Row) { r.Work[2].P99 = 3 },
		"3.0 times as many traps":              func(r *Row) { r.Traps = 3 },
		"40 % of the engine, of at least 41":   func(r *Row) { r.Share.Attacked = 40 },
		"46 % of the engine, of at least 47":   func(r *Row) { *r.Share = Share{Quiet: 70, Attacked: 46} },
		"the control socket answers in 101ms":  func(r *Row) { r.Control = 101 * time.Millisecond },
		"SIGTERM ends the server in 2.001s":    func(r *Row) { r.End = 2001 * time.Millisecond },
		"the server ended: one line; and more": func(r *Row) { r.fail("the server ended: one line\nand more") },
	} {
		r := calm()
		change(r)
		r.judge()
		require.Equal(t, want, strings.Join(r.Failed, "|"))
		var b strings.Builder
		require.NoError(t, Text(&b, []Row{*r}))
		require.Equal(t, want == "", strings.Contains(b.String(), "withstood"))
		require.Contains(t, b.String(), want)
	}
	r := calm()
	r.Skipped, r.End = "not here", time.Hour
	r.judge()
	require.Empty(t, r.Failed)
}
