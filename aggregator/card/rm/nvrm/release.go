package nvrm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Tried are the releases of the driver on which guests ran.
var Tried = []string{"580.159.04"}

// releaseForm finds the release in VersionFile.
var releaseForm = regexp.MustCompile(`\b(\d{3})\.(\d+)(\.\d+)?\b`)

// branch begins the releases whose structures are known.
const branch = "580."

// CheckRelease refuses a release with other structures, and one that was never tried unless untried.
func CheckRelease(release string, untried bool) error {
	switch {
	case !strings.HasPrefix(release, branch):
		return fmt.Errorf("release %s of the NVIDIA driver has structures that are not known; known are those of %s*", release, branch)
	case !untried && !slices.Contains(Tried, release):
		return &Missing{fmt.Sprintf("release %s of the NVIDIA driver was never tried; tried are %s", release, strings.Join(Tried, ", ")), "umbra serve --any-driver"}
	}
	return nil
}
