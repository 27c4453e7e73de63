package metrics_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/metrics"
)

// fill gives every field of a report a value, and every list one element.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && depth > 0 {
				fill(v.Field(i), depth-1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint64, reflect.Uint32:
		v.SetUint(2e9)
	case reflect.Int, reflect.Int64:
		v.SetInt(2e9)
	}
}

// full is a report in which everything has a value.
func full() (api.Report, error) {
	var r api.Report
	fill(reflect.ValueOf(&r).Elem(), 8)
	counts, rules := metrics.Counters()
	g := &r.GPUs[0]
	g.Counts, g.RulesBroken = map[string]uint64{}, map[string]uint64{}
	for _, c := range counts {
		g.Counts[c.Name] = 2e9
	}
	for _, c := range rules {
		g.RulesBroken[c.Name] = 2e9
	}
	return r, nil
}

// TestMetrics: every number reaches Prometheus once, under a name that its conventions allow, with its help, its kind
// and its labels; times have seconds, and a text is 1.
func TestMetrics(t *testing.T) {
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(metrics.NewCollector(full))
	problems, err := testutil.GatherAndLint(all)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := all.Gather()
	require.NoError(t, err)
	have := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		have[f.GetName()] = f
	}
	seen := make(map[string]bool)
	for _, n := range metrics.Numbers() {
		f := have[n.Metric]
		require.NotNil(t, f, n.Metric)
		seen[n.Metric] = true
		require.Equal(t, n.Gauge, f.GetType() == dto.MetricType_GAUGE, n.Metric)
		require.Len(t, f.GetMetric()[0].GetLabel(), len(n.Labels), n.Metric)
	}
	require.Len(t, seen, len(have))
	require.EqualValues(t, 2, have["umbra_uptime_seconds"].GetMetric()[0].GetGauge().GetValue())
	require.EqualValues(t, 2, have["umbra_gpu_map_move_seconds_total"].GetMetric()[0].GetCounter().GetValue())
	require.EqualValues(t, 2e9, have["umbra_gpu_traps_total"].GetMetric()[0].GetCounter().GetValue())
	for _, name := range []string{"umbra_gpu_attached", "umbra_gpu_quarantined"} {
		require.EqualValues(t, 1, have[name].GetMetric()[0].GetGauge().GetValue(), name)
	}
}

// BenchmarkScrape is one request of Prometheus for eight GPUs, without the server's reading of its counters.
func BenchmarkScrape(b *testing.B) {
	r, _ := full()
	for range 7 {
		r.GPUs = append(r.GPUs, r.GPUs[0])
	}
	for i := range r.GPUs {
		r.GPUs[i].Name = string(rune('a' + i))
	}
	all := prometheus.NewRegistry()
	all.MustRegister(metrics.NewCollector(func() (api.Report, error) { return r, nil }))
	for b.Loop() {
		_, err := all.Gather()
		require.NoError(b, err)
	}
}

// TestContrib: the dashboard and the alerts name only metrics that there are, with labels that these have.
func TestContrib(t *testing.T) {
	labels := map[string][]string{"umbra_build_info": {"version"}}
	for _, n := range metrics.Numbers() {
		labels[n.Metric] = n.Labels
	}
	use := regexp.MustCompile(`\b(umbra_\w+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)=~?`)
	count := func(name, text string) {
		for _, m := range use.FindAllStringSubmatch(text, -1) {
			require.Contains(t, labels, m[1], name)
			for _, l := range label.FindAllStringSubmatch(strings.ReplaceAll(m[2], `\"`, `"`), -1) {
				require.Contains(t, append(labels[m[1]], "instance", "job"), l[1], "%s: %s", name, m[0])
			}
		}
	}
	dashboard, err := os.ReadFile("../../contrib/grafana/umbra.json")
	require.NoError(t, err)
	require.True(t, json.Valid(dashboard))
	count("dashboard", string(dashboard))
	text, err := os.ReadFile("../../contrib/prometheus/umbra.rules.yml")
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &rules))
	require.NotEmpty(t, rules.Groups[0].Rules)
	for _, r := range rules.Groups[0].Rules {
		count(r.Alert, r.Expr)
		require.Regexp(t, `(?s)(umbra_|^up).*`, r.Expr)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
	}
}
