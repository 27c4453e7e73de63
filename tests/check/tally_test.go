package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

const events = `
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"run","Package":"p","Test":"TestA/y"}
{"Action":"pass","Package":"p","Test":"TestA/x","Elapsed":0.1}
{"Action":"fail","Package":"p","Test":"TestA/y","Elapsed":0.1}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0.2}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: no KVM here\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"attr","Package":"p","Test":"TestC","Key":"kernel","Value":"6.12.1 under tcg"}
{"Action":"pass","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p"}
`

func feed(t *tally, text string) string {
	var out bytes.Buffer
	r := t.begin(&out, false)
	for line := range bytes.Lines([]byte(text)) {
		if len(bytes.TrimSpace(line)) > 0 {
			r.line(line)
		}
	}
	r.end()
	return out.String()
}

func count(t *tally) [3]int {
	p, f, s := t.counts()
	return [3]int{p, f, s}
}

func TestCountsLeaves(t *testing.T) {
	var a tally
	feed(&a, events)
	require.Equal(t, [3]int{2, 1, 1}, count(&a), "TestA/x, TestC passed; TestA/y failed; TestB skipped")
	require.Equal(t, 5, a.executions)
	require.Equal(t, "no KVM here", a.reasons[testName{"p", "TestB"}])
	require.Equal(t, []string{"6.12.1 under tcg"}, a.kernelList())
}

func TestSecondRunOfATest(t *testing.T) {
	var a tally
	feed(&a, events)
	feed(&a, `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p","Test":"TestC"}`)
	require.Equal(t, [3]int{2, 2, 0}, count(&a), "a skip gives way to a pass, a pass to a failure")
}

func TestParentFailsAlone(t *testing.T) {
	var a tally
	feed(&a, `{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`)
	require.Equal(t, [3]int{1, 1, 0}, count(&a))
}

func TestBuildFailure(t *testing.T) {
	var a tally
	out := feed(&a, `{"ImportPath":"p [p.test]","Action":"build-output","Output":"p/x.go:3: undefined: y\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`)
	require.Equal(t, [3]int{0, 1, 0}, count(&a))
	require.Contains(t, out, "undefined: y")
}

func TestDeath(t *testing.T) {
	var a tally
	out := feed(&a, `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"last words\n"}`)
	require.Equal(t, [3]int{0, 1, 0}, count(&a))
	require.Contains(t, out, "last words")
	require.Contains(t, out, "p TestA did not finish")
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name    string
		results []result
		want    string
		code    int
	}{
		{"all well", []result{{name: "vet"}}, "1 passed, 0 failed, 0 skipped\n", 0},
		{"a step fails", []result{{name: "vet", err: errors.New("x")}}, "1 passed, 1 failed, 0 skipped\n", 1},
		{"a step is skipped", []result{{name: "race", skipped: "no compiler"}}, "1 passed, 0 failed, 1 skipped\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			k := checker{out: &out, results: c.results}
			feed(&k.tally, `{"Action":"pass","Package":"p","Test":"TestA"}`)
			require.Equal(t, c.code, k.summary())
			lines := bytes.SplitAfter(out.Bytes(), []byte("\n"))
			require.Equal(t, c.want, string(lines[len(lines)-2]))
		})
	}
}

func TestChoose(t *testing.T) {
	names := func(s []step) (out []string) {
		for _, x := range s {
			out = append(out, x.name)
		}
		return out
	}
	all, err := choose(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"gofmt", "vet", "staticcheck", "unit", "race", "libvfio-user", "vm"}, names(all))
	lint, err := choose([]string{"lint"})
	require.NoError(t, err)
	require.Equal(t, []string{"gofmt", "vet", "staticcheck"}, names(lint))
	_, err = choose([]string{"unti"})
	require.ErrorContains(t, err, `"unti"`)
	require.ErrorContains(t, err, "unit")
}
