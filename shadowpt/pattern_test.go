package shadowpt_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestPatternEqualsItsRule holds the packed counters against the rule as it is
// written down, over random writes and flush points.
func TestPatternEqualsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := shadowpt.Rule{Burst: rapid.IntRange(0, 5).Draw(t, "burst"), Calm: rapid.IntRange(1, 3).Draw(t, "calm")}
		p := shadowpt.NewPattern(3<<12, rule)
		var writes, calm [3]int
		var dense [3]bool
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "step") == 0 {
				p.Flushed()
				for i := range writes {
					switch {
					case writes[i] == 0 || !dense[i]:
					case writes[i] > rule.Burst:
						calm[i] = 0
					default:
						if calm[i]++; calm[i] == rule.Calm {
							dense[i], calm[i] = false, 0
						}
					}
					writes[i] = 0
				}
				continue
			}
			page := rapid.IntRange(0, 2).Draw(t, "page")
			if writes[page]++; writes[page] > rule.Burst {
				dense[page], calm[page] = true, 0
			}
			require.Equal(t, !dense[page], p.Wrote(uint64(page)<<12+8))
		}
	})
	require.False(t, shadowpt.NewPattern(1<<12, shadowpt.DefaultRule).Wrote(1<<12), "outside")
}

func TestPolicies(t *testing.T) {
	require.NoError(t, shadowpt.DefaultPolicy.Check())
	for _, p := range shadowpt.Policies() {
		require.NoError(t, p.Check())
	}
	p := shadowpt.DefaultPolicy
	p.Scan, p.Sync = shadowpt.ScanFull, shadowpt.SyncEager
	require.EqualError(t, p.Check(), "eager does not go with full; possible are flush with full, lazy with full, "+
		"flush with incremental, lazy with incremental, eager with incremental, adaptive with incremental")
	p = shadowpt.DefaultPolicy
	p.Rule.Calm = 0
	require.EqualError(t, p.Check(), "0 flush points: must be 1 to 255")
	p.Rule = shadowpt.Rule{Burst: -1, Calm: 1}
	require.EqualError(t, p.Check(), "-1 writes: must be 0 to 65534")
}
