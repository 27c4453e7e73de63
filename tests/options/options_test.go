package options

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/shadowpt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestProduct: what is possible is what the product has, but for policies of shadows
// that do not go together. The numbers are those of the documentation.
func TestProduct(t *testing.T) {
	all := All()
	require.Len(t, all, len(shadowpt.Policies())*16*2*7)
	seen := make(map[string]bool)
	for _, c := range all {
		seen[c.String()] = true
	}
	require.Len(t, seen, len(all))
	require.Equal(t, "flush full none trap off", Oracle.String())
	c, err := Find(all[77].String())
	require.NoError(t, err)
	require.Equal(t, all[77], c)
	_, err = Find("eager full none trap off")
	require.ErrorContains(t, err, `one is "flush full none trap off"`)
}

// TestRefused: each combination that is not possible is refused with what would be.
func TestRefused(t *testing.T) {
	with := make(map[string][]string)
	for _, p := range shadowpt.Policies() {
		with[p.Sync.String()] = append(with[p.Sync.String()], p.Scan.String())
	}
	n := 0
	for c := range product() {
		_, err := c.Layer("a")
		if err == nil {
			continue
		}
		n++
		require.EqualError(t, err, fmt.Sprintf("--gpu name=a: shadow.sync: %s does not go with shadow.scan=%s (--gpu name=a: shadow.scan); set shadow.scan=%s too", c.Word(0), c.Word(1), strings.Join(with[c.Word(0)], " or ")))
	}
	require.Equal(t, 16*2*7, n)
}

// TestUnknownWords: a word that an option does not have is refused with those that it
// has, and its axes have them all.
func TestUnknownWords(t *testing.T) {
	list := func(words []string) string { return strings.Join(words, " or ") }
	for key, refusal := range map[string]string{
		"shadow.sync":      "--gpu name=a: shadow.sync: nonsense: must be eager or flush or lazy",
		"shadow.scan":      "--gpu name=a: shadow.scan: nonsense: must be full or incremental",
		"bar-map":          `--gpu name=a: bar-map: "nonsense" cannot be mapped; say none, all, or any of bar1, bar3, pramin, rom`,
		"doorbell":         `--gpu name=a: doorbell: "nonsense" is no way to hear doorbells; say ` + list(doorbell.Modes[:]),
		"scheduler.policy": "--sched-policy: nonsense: must be auto or " + list(schedulers()),
	} {
		var words []string
		for i, a := range Axes {
			if a.Key != key {
				continue
			}
			words = append(words, a.Words...)
			saved := a.Words
			Axes[i].Words = []string{"nonsense"}
			_, err := Oracle.Layer("a")
			Axes[i].Words = saved
			require.EqualError(t, err, refusal)
		}
		_, allowed, _ := strings.Cut(refusal, "nonsense")
		for _, w := range words {
			require.Contains(t, allowed, w)
		}
	}
	require.Equal(t, len(Axes), 4+4, "an axis has no refusal above")
}

// TestPairs: the few have every pair that all have, and are few.
func TestPairs(t *testing.T) {
	few, all := Pairs(), All()
	require.Equal(t, pairs(all), pairs(few))
	t.Logf("%d of %d combinations have all %d pairs", len(few), len(all), len(pairs(all)))
	require.Subset(t, all, few)
	require.LessOrEqual(t, len(few), 25, "21 are the least: of each scheduler with each sync")
}

// TestLayer: a combination is what the words of its options say.
func TestLayer(t *testing.T) {
	for _, c := range All() {
		l, err := c.Layer("a")
		require.NoError(t, err)
		g := l.Config.GPUs[0]
		maps := strings.ReplaceAll(g.BARMap.String(), ",", "+")
		if g.BARMap == homes.MapAll {
			maps = "bar1+bar3+pramin+rom"
		}
		require.Equal(t, strings.Join([]string{g.Shadow.Sync, g.Shadow.Scan, maps, g.Doorbell.String(), l.Config.Scheduler.Policy}, " "), c.String())
	}
}
