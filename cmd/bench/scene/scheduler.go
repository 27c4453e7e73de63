package scene

import (
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
)

// Scheduler is a way to share the card's time that a scenario goes through.
type Scheduler struct {
	Name    string
	options map[string]string
	// Ahead is what is set live, where a machine has been booted with another; nil leaves it.
	Ahead *time.Duration
}

var alone = time.Duration(0)

// Schedulers are those of the scenario about doorbells. With the last one nothing goes to
// the card before what is there has ended.
var Schedulers = []Scheduler{
	{Name: "no scheduler", options: map[string]string{"policy": "off"}},
	{Name: "credit", options: map[string]string{"policy": "credit"}},
	{Name: "credit, one at a time", options: map[string]string{"policy": "credit", "ahead": alone.String()}, Ahead: &alone},
}

// Virtual says that the whole card has no such thing.
func (s *Scheduler) Virtual() bool { return s.options["policy"] != "off" }

// Shape is a shape with the scheduler.
func (s *Scheduler) Shape(of setup.Shape) setup.Shape {
	of.Scheduler = s.options
	return of
}

// Parameters are those of a case with so many doorbells.
func (s *Scheduler) Parameters(n int) map[string]string {
	return map[string]string{"doorbells": fmt.Sprint(n), "scheduler": s.options["policy"]}
}

// Each enters the server's time for one of n.
func Each(t *Take, name string, used time.Duration, n int) {
	t.Figure(name, report.Nanoseconds, float64(used)/float64(n))
}

// Woken enters how often threads of the server were woken for one of n, in the phase that
// was measured last: by its socket, and to look for doorbells.
func Woken(t *Take, looks uint64, n int) {
	t.Figure("wakes", report.Number, (t.Last().Counts[report.Wakes]+float64(t.Bed.Looks()-looks))/float64(n))
}
