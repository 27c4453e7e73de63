package fetch

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCompareVersions(t *testing.T) {
	// Ascending.
	order := []string{
		"1.0~rc1-1", "1.0-0+deb12u1", "1.0-1", "1.0-1+b1", "1.0.1-1", "1.2-1", "1.10-1",
		"6.1.176-1", "6.1.192-2", "6.12.95-1~bpo12+1", "6.12.107-1", "6.12.117-1~deb12u1", "6.12.117-1",
		"1:0.1", "1:10.0.13+ds-0+deb13u1", "1:11.1.3+ds-1~bpo13+1", "1:11.1.3+ds-1",
	}
	for i, a := range order {
		for j, b := range order {
			got := compareVersions(a, b)
			switch {
			case i < j:
				require.Negative(t, got, "%s, %s", a, b)
			case i > j:
				require.Positive(t, got, "%s, %s", a, b)
			default:
				require.Zero(t, got, "%s, %s", a, b)
			}
		}
	}
	require.Zero(t, compareVersions("1.0", "0:1.0-0"))
	require.Zero(t, compareVersions("1.00", "1.0"))
}

// The comparison agrees with dpkg's.
func TestCompareVersionsAsDpkg(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("no dpkg on this machine to compare with")
	}
	version := rapid.StringMatching(`([0-9]:)?[0-9][0-9a-c.+~]{0,6}(-[0-9a-c.+~]{1,4})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := version.Draw(t, "a"), version.Draw(t, "b")
		op := map[bool]string{true: "lt", false: "ge"}[compareVersions(a, b) < 0]
		if err := exec.Command(dpkg, "--compare-versions", a, op, b).Run(); err != nil {
			t.Fatalf("dpkg does not find %q %s %q", a, op, b)
		}
	})
}
