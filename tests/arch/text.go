package arch

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// A textRule is something that no tracked file may contain.
type textRule struct {
	pattern *regexp.Regexp
	why     string
}

// Names are put together here so that this file does not contain them.
var textRules = []textRule{
	{
		regexp.MustCompile(`(^|[^A-Za-z0-9_.~/-])/(` + strings.Join([]string{"work", "root", "home", "tmp"}, "|") + `)/[A-Za-z0-9_.-]`),
		"a path of one machine: use the test's temporary folder, the cache folder or a relative path",
	},
	{
		regexp.MustCompile(`(?i)` + strings.Join([]string{
			`proxy\.` + `golang\.org`, `sum\.` + `golang\.org`, `goproxy\.` + `(io|cn)`,
			`(deb|security|ftp)[a-z0-9.]*\.` + `debian\.org`, `snapshot\.` + `debian\.org`, `archive\.` + `ubuntu\.com`,
			`registry\.` + `npmjs\.org`, `pypi\.` + `org`, `docker\.` + `io`, `ghcr\.` + `io`,
		}, "|")),
		"the host of a registry: which mirror is used is the machine's configuration, not ours",
	},
}

// textFindings reports the lines of one file that a rule forbids. Binary files
// are passed over.
func textFindings(name string, content []byte) []string {
	if bytes.IndexByte(content, 0) >= 0 || path.Base(name) == "go.sum" {
		return nil
	}
	var out []string
	for i, line := range bytes.Split(content, []byte("\n")) {
		for _, r := range textRules {
			if m := r.pattern.Find(line); m != nil {
				out = append(out, fmt.Sprintf("%s:%d: %q: %s", name, i+1, m, r.why))
			}
		}
	}
	return out
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// linkFindings reports relative links of a Markdown file that lead nowhere.
func linkFindings(name string, content []byte, exists func(string) bool) []string {
	var out []string
	for _, m := range markdownLink.FindAllSubmatch(content, -1) {
		target := string(m[1])
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if to := path.Join(path.Dir(name), target); !exists(to) {
			out = append(out, fmt.Sprintf("%s: the link to %s leads nowhere", name, target))
		}
	}
	return out
}
