package arch

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
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

var (
	quoted   = regexp.MustCompile("`([^`\\n]+)`")
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	goFile   = regexp.MustCompile(`^[\w./-]+/[\w.-]+\.go$`)
	makeCall = regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z-]*)")
)

// staleFindings reports tests, files and make targets that a Markdown file names
// in code quotes and that are not there.
func staleFindings(name string, content []byte, tests, files, targets []string) []string {
	var out []string
	stale := func(what, word string, known []string) {
		if !slices.Contains(known, word) {
			out = append(out, fmt.Sprintf("%s: there is no %s %s", name, what, word))
		}
	}
	for _, m := range quoted.FindAllSubmatch(content, -1) {
		word := string(m[1])
		switch {
		case testName.MatchString(word) && word != "FuzzX":
			stale("test", word, tests)
		case goFile.MatchString(word):
			stale("file", word, files)
		}
	}
	for _, m := range makeCall.FindAllSubmatch(content, -1) {
		stale("make target", string(m[1]), targets)
	}
	return out
}
