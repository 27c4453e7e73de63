package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
)

// keywords are those that Validate knows. Another one in the schema would be
// passed over.
var keywords = []string{
	"$schema", "title", "$defs", "$ref", "const", "enum", "type", "minimum", "required", "items", "properties", "additionalProperties",
}

func TestSchemaUsesKnownKeywords(t *testing.T) {
	var walk func(s map[string]any)
	walk = func(s map[string]any) {
		for k, v := range s {
			require.Contains(t, keywords, k)
			switch v := v.(type) {
			case map[string]any:
				if k != "properties" && k != "$defs" {
					walk(v)
					continue
				}
				for _, sub := range v {
					walk(sub.(map[string]any))
				}
			}
		}
		if s["type"] == "object" {
			require.Contains(t, s, "additionalProperties")
		}
	}
	walk(parse(t, report.JSONSchema).(map[string]any))
}

func keys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func parse(t *testing.T, data []byte) (v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(data, &v))
	return v
}

func TestSchemaDescribesReports(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().Encode(&b))
	wrong, err := report.Validate(b.Bytes())
	require.NoError(t, err)
	require.Empty(t, wrong)
	_, err = report.Validate([]byte("{"))
	require.Error(t, err)
}

// A schema that takes anything would prove nothing: each of these is found.
func TestSchemaRefuses(t *testing.T) {
	for name, spoil := range map[string]func(r map[string]any){
		"report.version: 1 is not 3":                                        func(r map[string]any) { r["version"] = 1.0 },
		"report: has no machine":                                            func(r map[string]any) { delete(r, "machine") },
		"report: has colour, which is not in the schema":                    func(r map[string]any) { r["colour"] = "red" },
		"report.results[0].phases: is of type string, want array":           func(r map[string]any) { first(r)["phases"] = "none" },
		"report.setups: is of type null, want array":                        func(r map[string]any) { r["setups"] = nil },
		"report.results[0].where: moon is none of [process machine]":        func(r map[string]any) { first(r)["where"] = "moon" },
		"report.results[0].total.ns.n: 0 is less than 1":                    func(r map[string]any) { ns(r)["n"] = 0.0 },
		"report.results[0].total.ns.median: is of type string, want number": func(r map[string]any) { ns(r)["median"] = "1" },
		"report.results[0].parameters.x: is of type integer, want string":   func(r map[string]any) { first(r)["parameters"] = map[string]any{"x": 1.0} },
		"report.results[0].total.counts: has luck, which is not in the schema": func(r map[string]any) {
			first(r)["total"].(map[string]any)["counts"].(map[string]any)["luck"] = 1.0
		},
	} {
		var b strings.Builder
		require.NoError(t, sample().Encode(&b))
		r := parse(t, []byte(b.String())).(map[string]any)
		spoil(r)
		data, err := json.Marshal(r)
		require.NoError(t, err)
		wrong, err := report.Validate(data)
		require.NoError(t, err)
		require.Equal(t, []string{name}, wrong)
	}
}

func first(r map[string]any) map[string]any { return r["results"].([]any)[0].(map[string]any) }
func ns(r map[string]any) map[string]any {
	return first(r)["total"].(map[string]any)["ns"].(map[string]any)
}

// Every count that the program knows is in the schema, and no other.
func TestSchemaHasTheCounts(t *testing.T) {
	root := parse(t, report.JSONSchema).(map[string]any)
	in := keys(root["$defs"].(map[string]any)["counts"].(map[string]any)["properties"].(map[string]any))
	var want []string
	for _, c := range report.Counts {
		want = append(want, c.Name)
	}
	slices.Sort(want)
	require.Equal(t, want, in)
}

// TestPageOfTheSchema: docs/bench.md names the version and every field.
func TestPageOfTheSchema(t *testing.T) {
	page, err := os.ReadFile("../../../docs/bench.md")
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(fmt.Sprintf("version is %d\\b", report.Version)), string(page))
	root := parse(t, report.JSONSchema).(map[string]any)
	var walk func(s any)
	walk = func(s any) {
		m, ok := s.(map[string]any)
		if !ok {
			return
		}
		if p, ok := m["properties"].(map[string]any); ok {
			for name, sub := range p {
				require.Contains(t, string(page), "`"+name+"`", "docs/bench.md does not say what %s is", name)
				walk(sub)
			}
		}
		walk(m["items"])
	}
	walk(root)
	for _, d := range root["$defs"].(map[string]any) {
		walk(d)
	}
}
