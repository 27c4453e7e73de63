// Package metrics is the registry of the numbers that a server tells. Each is described once, by the tags of
// the field of package api, or of the counter of a guest, that has it:
//
//	json      its key in the control API's answers, in the texts of the commands and in the reference page
//	help      one sentence; "Gauge. " before it marks a present state, which may fall
//	metric    its name for Prometheus, if that is not the key; "-" if it is none
//
// Of another field, the tag metric says what it is for the numbers around it: "NAME,label" a label, "NAME,state" a
// number that is 1 while the text is not empty, and in a structure, a list or a map the beginning of the names in it.
//
// A [Collector] reads the numbers when Prometheus asks, so they cost nothing before. The package has no
// other state, and no goroutines but those of Prometheus' library during a request.
package metrics

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// A Number is one number for Prometheus.
type Number struct {
	In     string // the structure that has it, or "Counts", "Rules"
	Key    string // its name in the API
	Metric string // its name in Prometheus
	Help   string
	Gauge  bool
	Labels []string

	desc *prometheus.Desc
}

// Counters are the counters of a guest, and those of rules that it broke.
func Counters() (counts, rules []aggregator.Count) {
	for _, c := range new(aggregator.GuestStats).Counts() {
		if c.Rule {
			rules = append(rules, c)
		} else {
			counts = append(counts, c)
		}
	}
	for _, r := range vfiouser.DMARules() {
		rules = append(rules, aggregator.Count{Name: r.String(), Help: r.Help(), Rule: true})
	}
	return counts, rules
}

// Numbers are all numbers, in the order of the report.
func Numbers() (all []*Number) {
	newPlan(reflect.TypeFor[api.Report](), "umbra", nil, &all)
	return all
}

// Helps are the help texts of all numbers by structure and key: "GPUReport.traps".
func Helps() map[string]string {
	out := make(map[string]string)
	for _, n := range Numbers() {
		out[n.In+"."+n.Key] = n.Help
	}
	return out
}

// A plan says where the numbers of a structure are.
type plan struct {
	labels  [][]int // indexes of fields
	numbers []place
	parts   []part
	counts  map[string]*Number // of a map with names of counters
	rules   *Number            // of a map with names of rules, which are a label
}

type place struct {
	index []int
	of    *Number
}

type part struct {
	index []int
	in    *plan
}

// newPlan makes the plan of a structure, and appends its numbers to all.
func newPlan(t reflect.Type, prefix string, labels []string, all *[]*Number) *plan {
	p, fields := new(plan), reflect.VisibleFields(t)
	number := func(in, key, metric, help string, more ...string) *Number {
		n := &Number{In: in, Key: key, Labels: slices.Concat(labels, more)}
		n.Help, n.Gauge = strings.CutPrefix(help, "Gauge. ")
		name, isTime := strings.CutSuffix(cmp.Or(metric, key), "_ns")
		if isTime {
			name += "_seconds"
		}
		if !n.Gauge {
			name += "_total"
		}
		n.Metric = prefix + "_" + name
		n.desc = prometheus.NewDesc(n.Metric, n.Help, n.Labels, nil)
		*all = append(*all, n)
		return n
	}
	for _, f := range fields {
		if name, is := strings.CutSuffix(f.Tag.Get("metric"), ",label"); is {
			labels, p.labels = slices.Concat(labels, []string{name}), append(p.labels, f.Index)
		}
	}
	counts, rules := Counters()
	for _, f := range fields {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		tag, tagged := f.Tag.Lookup("metric")
		name, kind, _ := strings.Cut(tag, ",")
		of, help := f.Type, f.Tag.Get("help")
		if k := of.Kind(); k == reflect.Slice || k == reflect.Pointer {
			of = of.Elem()
		}
		switch {
		case f.Anonymous, kind == "label", tag == "-":
		case of.Kind() == reflect.Struct && tagged:
			p.parts = append(p.parts, part{f.Index, newPlan(of, strings.TrimSuffix(prefix+"_"+name, "_"), labels, all)})
		case of.Kind() == reflect.Map && tagged && name == "":
			in := &plan{counts: make(map[string]*Number)}
			for _, c := range counts {
				in.counts[c.Name] = number("Counts", c.Name, "", c.Help)
			}
			p.parts = append(p.parts, part{f.Index, in})
		case of.Kind() == reflect.Map && tagged:
			in := &plan{rules: number(strings.TrimPrefix(t.String(), "api."), key, name, help, "rule")}
			for _, r := range rules {
				*all = append(*all, &Number{In: "Rules", Key: r.Name, Metric: in.rules.Metric, Help: r.Help, Labels: in.rules.Labels})
			}
			p.parts = append(p.parts, part{f.Index, in})
		case help != "" && of.Kind() != reflect.Struct:
			p.numbers = append(p.numbers, place{f.Index, number(strings.TrimPrefix(t.String(), "api."), key, name, help)})
		}
	}
	return p
}
