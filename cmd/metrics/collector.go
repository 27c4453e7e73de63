package metrics

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/umbra-gpu/umbra/cmd/api"
)

// Collector gives Prometheus' library the numbers of a server.
type Collector struct {
	report func() (api.Report, error)
	plan   *plan
	all    []*Number
}

// NewCollector makes a collector of what report returns.
func NewCollector(report func() (api.Report, error)) *Collector {
	c := &Collector{report: report}
	c.plan = newPlan(reflect.TypeFor[api.Report](), "umbra", nil, &c.all)
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, n := range c.all {
		if n.desc != nil {
			out <- n.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	r, err := c.report()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.all[0].desc, err)
		return
	}
	c.plan.collect(reflect.ValueOf(&r).Elem(), nil, out)
}

func (p *plan) collect(v reflect.Value, labels []string, out chan<- prometheus.Metric) {
	send := func(n *Number, value float64, labels ...string) {
		kind := prometheus.CounterValue
		if n.Gauge {
			kind = prometheus.GaugeValue
		}
		out <- prometheus.MustNewConstMetric(n.desc, kind, value, labels...)
	}
	if v.Kind() == reflect.Map {
		for name, n := range v.Interface().(map[string]uint64) {
			switch of := p.counts[name]; {
			case p.rules != nil:
				send(p.rules, float64(n), append(slices.Clone(labels), name)...)
			case of != nil && strings.HasSuffix(name, "_ns"):
				send(of, time.Duration(n).Seconds(), labels...)
			case of != nil:
				send(of, float64(n), labels...)
			}
		}
		return
	}
	for _, index := range p.labels {
		labels = append(slices.Clone(labels), v.FieldByIndex(index).String())
	}
	for _, f := range p.numbers {
		send(f.of, number(v.FieldByIndex(f.index)), labels...)
	}
	for _, in := range p.parts {
		switch f := v.FieldByIndex(in.index); f.Kind() {
		case reflect.Slice:
			for i := range f.Len() {
				in.in.collect(f.Index(i), labels, out)
			}
		case reflect.Pointer:
			if !f.IsNil() {
				in.in.collect(f.Elem(), labels, out)
			}
		default:
			in.in.collect(f, labels, out)
		}
	}
}

// number is the value for Prometheus, which has seconds for times.
func number(v reflect.Value) float64 {
	switch d, isTime := v.Interface().(time.Duration); {
	case isTime:
		return d.Seconds()
	case v.CanUint():
		return float64(v.Uint())
	case v.CanInt():
		return float64(v.Int())
	case !v.IsZero(): // true, or a text that is there
		return 1
	}
	return 0
}
