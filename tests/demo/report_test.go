package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// whole is a run in which everything held, with figures that fill the columns.
func whole() *result {
	return &result{
		outcome: outcome{Setup: setupPassThrough, OK: true, QEMU: "11.1.3", Accel: "tcg", AccelWhy: "no /dev/kvm", Checks: []check{
			{Name: "probe", OK: true, Detail: "/dev/dri/card0 and renderD128, MSI, buffers moved by M2MF", Took: 2500 * time.Millisecond},
			{Name: "M2MF", OK: true, Detail: "43 kinds of copies, VRAM and GART, linear and tiled: all verified", Took: 704600 * time.Microsecond},
			{Name: "registers", OK: true, Detail: "181,919 accesses, each to a declared register", Took: 12 * time.Microsecond},
		}, Phases: []phase{
			{"card and machine up, Debian booted", 4900 * time.Millisecond, 0},
			{"nouveau probes the card", 2500 * time.Millisecond, 1900 * time.Millisecond},
			{"all", 15100 * time.Millisecond, 0},
		}},
		Kernel: "6.12.94+deb13-amd64", VRAM: 512 << 20,
		Nouveau: []string{"[ 6.421032] NVIDIA GF100 (0c0000a3)", "[ 7.449605] drm: " + strings.Repeat("a long line ", 12)},
		Copies: []copies{
			{"M2MF", 683835, map[string]uint64{"9039": 2592342}, 85},
			{"copy engines", 1393154, map[string]uint64{"90b5": 2768336, "90b8": 1234567890}, 188},
		},
		Fences:  fences{100, 12, 285700, 1900 * time.Microsecond, 28, 1218, 742, 12},
		IRQ:     interrupts{68, 68, 67, 20, "MSI"},
		Regions: []traps{{Name: "BAR0, registers", Reads: 7914, Writes: 174005}, {Name: "BAR3, instance memory", Reads: 2048, Writes: 706468}},
		Blocks: []traps{
			{"PRAMIN", 0, 147590, 56900 * time.Microsecond}, {"PCCSR", 50, 130, 1400 * time.Microsecond},
			{"A", 1, 1, 900}, {"B", 1, 1, 800}, {"C", 1, 1, 700}, {"D", 1, 1, 600}, {"E", 1, 1, 500}, {"F", 1, 1, 400},
			{"G", 1, 1, 300}, {"H", 1, 1, 200}, {"I", 1, 2, 90}, {"J", 3, 4, 10},
		},
	}
}

// broken is a run on a card that copies wrong, whose guest then died.
func broken() *result {
	r := whole()
	r.Control = true
	r.Checks[1] = check{Name: "M2MF", Took: time.Second, Problems: []string{
		"the guest says: m2mf pages, vram to vram: semaphore holds 0xdead0010, want 0x1\nthrough the BAR, byte 0x0 reads 0x00000000, want 0x2da849f5",
		"25 of 25 cases came out wrong", "three", "four", "five",
	}}
	r.Checks = append(r.Checks, check{Name: "fences", NotRun: true})
	r.Error = "guest agent: fences: the connection has ended"
	r.Log = []string{"end of the console (2 lines):", "  Kernel panic - not syncing"}
	r.judge()
	return r
}

func render(t *testing.T, r *result, colour bool) string {
	t.Helper()
	var b bytes.Buffer
	p := &printer{w: &b, colour: colour}
	p.head(r)
	for i := range r.Checks {
		if !r.Checks[i].NotRun { // the report adds those
			p.check(&r.Checks[i])
		}
	}
	require.NoError(t, p.report(r))
	return b.String()
}

func TestReport(t *testing.T) {
	early := &result{outcome: outcome{Error: "fetching Linux 6.12: no mirror answers"}}
	early.judge()
	for name, text := range map[string]string{
		"shared": renderShared(t, wholeShared()), "shared-broken": renderShared(t, brokenShared()),
		"whole": render(t, whole(), false), "broken": render(t, broken(), false),
		"early": func() string {
			var b bytes.Buffer
			require.NoError(t, (&printer{w: &b}).report(early))
			return b.String()
		}(),
	} {
		file := filepath.Join("testdata", name+".golden")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), text)
		for l := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(l, "\n")), width, l)
		}
		require.NotContains(t, text, "\x1b")
	}
}

// Colours change nothing else.
func TestColours(t *testing.T) {
	text := render(t, broken(), true)
	require.Contains(t, text, "\x1b[1;31mFAILED")
	for _, code := range []string{bold, red, green, faint, "0"} {
		text = strings.ReplaceAll(text, "\x1b["+code+"m", "")
	}
	require.Equal(t, render(t, broken(), false), text)
}

// A terminal sees what is waited for, and none of it remains.
func TestWaiting(t *testing.T) {
	var b bytes.Buffer
	p := &printer{w: &b, live: true}
	p.waiting("fences")
	require.Contains(t, b.String(), "fences")
	p.line("done")
	require.Equal(t, "   ...     fences\r                 \rdone\n", b.String())
	b.Reset()
	p = &printer{w: &b}
	p.waiting("fences")
	require.Empty(t, b.String())
}

func TestExitCodes(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, exitOK, finish(&out, &whole().outcome, nil))
	require.Equal(t, exitFailed, finish(&out, &broken().outcome, nil))
	require.Equal(t, exitFailed, finish(&out, &whole().outcome, os.ErrClosed), "a report that nobody could read")

	r := whole()
	r.Checks[2].OK = false
	r.judge()
	require.False(t, r.OK, "one check is enough")
	r = whole()
	r.Checks = nil
	r.judge()
	require.False(t, r.OK, "nothing was checked")
	r = whole()
	r.Error = "no such thing"
	r.judge()
	require.False(t, r.OK)
}

// What was interrupted did not fail; what failed before did, and what runs out of time
// does.
func TestStopped(t *testing.T) {
	late, end := context.WithTimeout(context.Background(), 0)
	defer end()
	<-late.Done()
	for name, c := range map[string]struct {
		ctx    func() context.Context
		before bool // a check had failed
		want   string
		not    string
	}{
		"interrupted":          {func() context.Context { ctx, stop := context.WithCancel(context.Background()); stop(); return ctx }, false, "stopped, as asked, after 9.0 s; checks that had held: 1", "FAILED"},
		"after a failure":      {func() context.Context { ctx, stop := context.WithCancel(context.Background()); stop(); return ctx }, true, "FAILED  first", "FAILED  copies"},
		"out of time":          {func() context.Context { return late }, false, "FAILED  copies", "stopped"},
		"by itself, with time": {context.Background, false, "FAILED  copies", "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			var r result
			s := &stage{context.Background(), &printer{w: &b}, &r.outcome}
			s.check("first", func(k *check) { k.want(!c.before, "it does not hold") })
			s.ctx = c.ctx()
			s.check("copies", func(k *check) { k.fail("the guest does not answer") })
			s.notRun("fences")
			r.Phases = []phase{{Name: "all", Wall: 9 * time.Second}}
			r.end(s.ctx, errors.New("QEMU was killed"))
			require.False(t, r.OK)
			require.NoError(t, s.p.report(&r))
			require.Contains(t, b.String(), c.want)
			require.NotContains(t, b.String(), c.not)
			require.Equal(t, c.not == "stopped", strings.Contains(b.String(), "QEMU was killed"))
			require.Equal(t, c.not == "stopped", strings.Contains(b.String(), "not tried"))
		})
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeJSON(&b, whole()))
	var back result
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, *whole(), back)
}

func TestUsage(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer out.Close()
	for _, c := range []struct{ args, says string }{
		{"--kernel 5.10,6.1", `demo: --kernel: "5.10": it can be one of 6.1, 6.12, 7.2`},
		{"--kernel 6.12", "demo: --kernel: 6.12: 1 guests; name 2 to 6 kernels, or add --pass-through"},
		{"--kernel 6.1,6.1,6.1,6.1,6.1,6.1,6.1", "7 guests; name 2 to 6 kernels"},
		{"--pass-through --kernel 6.1,7.2", "with --pass-through there is one guest; name one kernel"},
		{"--pass-through --umbra x", "with --pass-through no umbra serve is started"},
		{"--umbra no-such-file", "demo: --umbra: "},
		{"--no-such", "flag provided but not defined"},
		{"now", `demo: "now": there are no arguments, only options`},
	} {
		require.NoError(t, out.Truncate(0))
		_, err := out.Seek(0, 0)
		require.NoError(t, err)
		require.Equal(t, exitUsage, run(t.Context(), strings.Fields(c.args), out, out), c.args)
		text, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		require.Contains(t, string(text), c.says)
	}
	for args, kernels := range map[string][]string{
		"": {"", "7.2"}, "--pass-through": {""}, "--kernel 6.1,7.2,6.1": {"6.1", "7.2", "6.1"}, "--pass-through --kernel 6.1": {"6.1"},
	} {
		o, err := parse(strings.Fields(args), io.Discard)
		require.NoError(t, err)
		require.Equal(t, kernels, o.kernels, args)
	}
}
