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
	r = simulate(t, Options{Preset: "between", Policies: []string{"credit"}, Hierarchies: []string{"tree", "flat"}})
	require.Less(t, r.Runs[0].Flatness, 0.02)
	require.Greater(t, r.Runs[1].Flatness, 1.0)
	require.Greater(t, r.Runs[1].Slope, 1.0)

	r = simulate(t, Options{Preset: "cheat", Policies: []string{"dfq"}, Set: []string{"dfq.model=true"}})
	require.Greater(t, r.Runs[0].Clients[0].Share, 0.75)
}

// TestManyProcesses: more than there are colours, and rows for a person.
func TestManyProcesses(t *testing.T) {
	r := simulate(t, Options{Guests: []string{"name=a,busy=1ms,processes=40", "name=b,busy=1ms"}, Policies: []string{"credit"}, Duration: time.Second})
	require.Contains(t, r.Text(), "and 25 more, which the JSON has")
	var page strings.Builder
	require.NoError(t, r.WritePage(&page))
	require.Contains(t, page.String(), "a/p-40")
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

	vm := "name=vm,busy=1ms,processes=2,cap=20"
	r = simulate(t, Options{Guests: []string{vm, "name=a,busy=1ms"}, Policies: []string{"credit"}, Hierarchies: []string{"tree", "flat"}, Duration: 2 * time.Second})
	require.NotNil(t, r.Runs[0].ShareError)
	require.Nil(t, r.Runs[1].ShareError)
	require.Contains(t, r.Text(), "credit, flat has no ideal: ")
	require.Regexp(t, `credit, flat +- +- +\d`, r.Text())
	var page, text strings.Builder
	require.NoError(t, r.WritePage(&page))
	require.NoError(t, r.WriteJSON(&text))
	require.Contains(t, text.String(), `"ideal": null`)
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

// TestSweepsAreBounded: every sweep there is can be run with all policies in all hierarchies,
// and one with so much time for each run that nobody would wait is refused with its product; a
// program that is not done has no runtime, and the run says so.
func TestSweepsAreBounded(t *testing.T) {
	for _, preset := range Presets() {
		if preset.Sweep == nil {
			continue
		}
		_, err := (&Options{Preset: preset.Name, Hierarchies: sched.Hierarchies()}).Plan()
		require.NoError(t, err, preset.Name)
	}
	o := Options{Preset: "base", Hierarchies: sched.Hierarchies(), Duration: time.Hour}
	_, err := o.Plan()
	require.ErrorContains(t, err, "--duration: 1h0m0s: 10 points of the sweep, each shared in 18 ways (policy and hierarchy), are 180 runs")
	require.Regexp(t, `come to 1\d\d\d million requests; at most 400 million: give each 1\dm\d+s or less, or name fewer policies`, err.Error())
	o.Policies, o.Hierarchies = []string{"credit"}, nil
	_, err = o.Plan()
	require.NoError(t, err, "one policy may")

	p, err := (&Options{Preset: "base", Policies: []string{"credit"}, Duration: time.Second}).Plan()
	require.NoError(t, err)
	_, err = Simulate(t.Context(), p)
	require.EqualError(t, err, "--duration: 1s: the program is not done in so much card time with credit where length of the other's requests, ms is 0.1; give it more, or leave that policy out (--policy)")
}

// TestPolicyTwice: a policy is named once.
func TestPolicyTwice(t *testing.T) {
	_, err := (&Options{Preset: "nn", Policies: []string{"credit", "credit"}}).Plan()
	require.EqualError(t, err, "--policy: credit: there twice; name each once")
}
