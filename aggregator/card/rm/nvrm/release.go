package nvrm

import (
	"fmt"
	"regexp"
	"strings"
)

// Tried are the releases of the driver on which the suites ran.
var Tried = []string{"580.159.03", "580.159.04"}

var releaseForm = regexp.MustCompile(`\b(\d{3})\.(\d+)(\.\d+)?\b`)

func parseRelease(version string) (string, error) {
	r := releaseForm.FindString(version)
	if r == "" {
		return "", fmt.Errorf("no release in the driver's version %q", version)
	}
	return r, nil
}

// abi is what differs between releases.
type abi struct {
	branch string // the releases that begin so
}

// abis are the branches whose structures are known.
var abis = []abi{{branch: "580."}}

// abiOf returns the structures of a release.
func abiOf(release string, untried bool) (*abi, error) {
	for _, t := range Tried {
		if t == release {
			untried = true
		}
	}
	for i := range abis {
		if strings.HasPrefix(release, abis[i].branch) {
			if !untried {
				return nil, fmt.Errorf("release %s of the NVIDIA driver was never tried; tried are %s; --any-driver uses it nevertheless", release, strings.Join(Tried, ", "))
			}
			return &abis[i], nil
		}
	}
	return nil, fmt.Errorf("release %s of the NVIDIA driver has structures that are not known; known are those of %s*", release, abis[0].branch)
}
