package simulate

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

func simulate(t *testing.T, o Options) *Report {
	t.Helper()
	p, err := o.Plan()
	require.NoError(t, err)
	r, err := Simulate(t.Context(), p)
	require.NoError(t, err)
	return r
}

var (
	pictures = regexp.MustCompile(`(?s)<svg.*?</svg>`)
	foreign  = regexp.MustCompile(`(?i)https?:|<script|<link|<iframe|<img|<object|@import|url\(|\bsrc\s*=|\son\w+\s*=|javascript:`)
)

// TestEveryPreset: each can be run under every policy, and is written in all ways.
func TestEveryPreset(t *testing.T) {
	sweeps := 0
	for _, preset := range Presets() {
		if preset.Sweep != nil {
			if sweeps++; oneSweep && sweeps > 1 {
				continue
			}
		}
		o := Options{Preset: preset.Name, Duration: 500 * time.Millisecond}
		if preset.Sweep != nil {
			o = Options{Preset: preset.Name, Policies: []string{"none", "credit"}}
		}
		r := simulate(t, o)
		require.NotEmpty(t, r.About, preset.Name)
		require.Contains(t, r.Text(), preset.Name)

		var page, text strings.Builder
		require.NoError(t, r.WritePage(&page))
		require.Empty(t, foreign.FindAllString(page.String(), -1), preset.Name)
		all := pictures.FindAllString(page.String(), -1)
		require.NotEmpty(t, all, preset.Name)
		for _, svg := range all {
			d := xml.NewDecoder(strings.NewReader(svg))
			for {
				_, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err, svg)
			}
			require.NotContains(t, svg, "NaN")
		}

		require.NoError(t, r.WriteJSON(&text))
		var back Report
		require.NoError(t, json.Unmarshal([]byte(text.String()), &back))
		require.Equal(t, Schema, back.Schema)
		require.Len(t, back.Runs, len(r.Runs))
		if preset.Sweep == nil {
			require.Len(t, r.Runs, len(sched.Policies()))
			require.Len(t, r.Runs[0].Clients[0].Shares, windows)
		} else {
			require.Len(t, r.Runs[0].Runtimes, len(r.At))
		}
	}
}

// TestWhatIsShown: the figures are those of the runs.
func TestWhatIsShown(t *testing.T) {
	r := simulate(t, Options{Preset: "nn", Policies: []string{"none", "credit"}})
	require.InDelta(t, 0.9766, r.Runs[0].Clients[0].Share, 0.001)
	require.InDelta(t, 0.4766, *r.Runs[0].ShareError, 0.001)
	require.InDelta(t, 0.5, r.Runs[1].Clients[0].Share, 0.01)
	require.Contains(t, r.Text(), "97.66 %")
	require.Less(t, *r.Runs[1].Lag, 15*time.Millisecond)

	if oneSweep {
		return
	}
	r = simulate(t, Options{Preset: "between", Policies: []string{"credit"}})
	require.Less(t, r.Runs[0].Flatness, 0.02)

	r = simulate(t, Options{Preset: "cheat", Policies: []string{"dfq"}, Set: []string{"dfq.model=true"}})
	require.Greater(t, r.Runs[0].Clients[0].Share, 0.75)
}

// TestManyProcesses checks that the text leaves out most of many processes.
func TestManyProcesses(t *testing.T) {
	r := simulate(t, Options{Guests: []string{"name=a,busy=1ms,processes=40", "name=b,busy=1ms"}, Policies: []string{"credit"}, Duration: time.Second})
	require.Contains(t, r.Text(), "and 25 more, which the JSON has")
}

// TestStops: a plan ends with its context.
func TestStops(t *testing.T) {
	p, err := (&Options{Preset: "nn", Duration: 10 * time.Minute}).Plan()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = Simulate(ctx, p)
	require.ErrorIs(t, err, context.Canceled)
}

// TestDefaultsFit: every setting can be said as it is by default.
func TestDefaultsFit(t *testing.T) {
	require.Contains(t, Settings(), "credit.period")
	for _, key := range Settings() {
		for _, bad := range []string{"", "x", "1x"} {
			_, err := (&Options{Set: []string{key + "=" + bad}}).Plan()
			require.ErrorContains(t, err, key)
		}
	}
}

// TestBoundsAreIdeal: what a cap or a priority makes of shares is not told as an error,
// and where there is no ideal none is shown.
func TestBoundsAreIdeal(t *testing.T) {
	r := simulate(t, Options{Preset: "cap", Policies: []string{"credit", "none"}})
	require.InDelta(t, 0.2, *r.Runs[0].Clients[0].Ideal, 0.005)
	require.Less(t, *r.Runs[0].ShareError, 0.005)
	require.Greater(t, *r.Runs[1].ShareError, 0.05, "two lengths by turns")
}

// TestProgress: who waits for long is told how far it is.
func TestProgress(t *testing.T) {
	var said []string
	p := &Plan{Duration: time.Minute, Progress: func(s string) { said = append(said, s) }}
	now := time.Unix(0, 0)
	w := &wait{plan: p, now: func() time.Time { return now }}
	w.begin("credit")
	for at := time.Second; at <= 12*time.Second; at += time.Second {
		now = now.Add(time.Second / 2)
		w.tell(at)
	}
	require.Equal(t, []string{
		"credit: 6s of 1m0s of card time, about 27s left with this policy",
		"credit: 12s of 1m0s of card time, about 24s left with this policy",
	}, said)
}

// TestTooMuch: what would take for ever is refused before it begins, and only that.
func TestTooMuch(t *testing.T) {
	for guest, ok := range map[string]bool{
		"busy=10us": false, "busy=10us,processes=100": false, "busy=1ms": true, "busy=10us,think=16ms": true, "busy=10us,requests=1000": true,
		"busy=1ms,copies=500,copy-busy=10us": false, "busy=10us,stop=1s": true,
	} {
		_, err := (&Options{Guests: []string{guest}, Duration: time.Hour}).Plan()
		require.Equal(t, ok, err == nil, "%s: %v", guest, err)
		if !ok {
			require.Regexp(t, "simulate [1-9][0-9]*m[0-9]+s or less", err.Error())
		}
	}
}

// TestPolicyTwice: a policy is named once.
func TestPolicyTwice(t *testing.T) {
	_, err := (&Options{Preset: "nn", Policies: []string{"credit", "credit"}}).Plan()
	require.EqualError(t, err, "--policy: credit: there twice; name each once")
}
