package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Options that have no effect beside others, or a bad one. They are warned of and not
// refused: what they are for may come later, by a live change or another GPU, and the
// one who tries policies one after the other keeps the parameters of all. Refused is
// what contradicts itself. An option that says what is the default anyway asks for
// nothing, and is not warned of.

// WithScheduler says how there would be one.
const WithScheduler = "start the server with scheduler.policy (--sched-policy), for example credit"

// noScheduler says why an option of one is for nothing.
const noScheduler = "has no effect without a scheduler"

// Beside is what else is there that decides whether the scheduler's options have an
// effect.
type Beside struct {
	Capped   bool           // some GPU has a cap
	Limited  bool           // some GPU has a limit of its own for requests
	Policies []sched.Policy // that children of nodes take turns by, other than the card's
}

// BesideOf is what GPUs have of that.
func BesideOf(gpus []GPU) (b Beside) {
	for i := range gpus {
		b.Capped = b.Capped || gpus[i].Cap > 0
		b.Limited = b.Limited || gpus[i].Limits.Request > 0
	}
	return b
}

// idle says why an option has no effect as the others are, "" if it has one.
func (s *Schedule) idle(key string, b Beside) string {
	by := sched.UsedBy(key)
	used := func(p sched.Policy) bool { return p.String() == s.Policy || slices.Contains(b.Policies, p) }
	// A cap is refilled by credit's period, whatever the policy.
	if by != nil && !slices.ContainsFunc(by, used) && !(strings.HasPrefix(key, "credit.") && b.Capped) {
		return fmt.Sprintf("has no effect while the policy is %s; it is for %s", s.Policy, list(by))
	}
	why := ""
	switch {
	case key == "depth" && s.Policy == sched.Timeslice.String() && s.Timeslice.Disengaged:
		why = "timeslice.disengaged gives the card all work of whose turn it is"
	case key == "timeslice.grace" && !s.Timeslice.WorkConserving:
		why = "timeslice.work-conserving is false"
	case key == "dfq.factor" && s.DFQ.FreeRun > 0:
		why = "dfq.free-run says how long a free run is"
	case key == "band.grace" && s.Band.Chances == 0:
		why = "band.chances is 0"
	case key == "band.chances" && s.Band.Grace == 0:
		why = "band.grace is 0s"
	case strings.HasPrefix(key, "watchdog.") && s.Limits.Request == 0 && !b.Limited:
		why = "requests have no limit (limits.request)"
	case key == "watchdog.within" && s.Watchdog.Offences == 0:
		why = "watchdog.offences is 0"
	}
	if why == "" {
		return ""
	}
	return "has no effect: " + why
}

// Idle warns of those of the keys that have no effect as the schedule is.
func (s *Schedule) Idle(text string, b Beside) (out []*Error) {
	order, values, err := s.pairs(text)
	if err != nil {
		return nil // which [Schedule.Change] says
	}
	for _, key := range order {
		if why := s.idle(key, b); why != "" {
			out = append(out, &Error{Where: key, Value: values[key], Reason: why})
		}
	}
	return out
}

// Ineffective lists what of the schedule differs from the default and has no effect.
func (s *Schedule) Ineffective(b Beside) (out []*Error) {
	for _, o := range options(s) {
		if o.isDefault() {
			continue
		}
		if why := s.idle(o.path, b); why != "" {
			out = append(out, &Error{Where: o.path, Value: o.text(), Reason: why})
		}
	}
	return out
}

// Standing is [Schedule.Ineffective], and [Layer.WarningsOf] all the GPUs that share the card
// by it.
func (l *Layer) Standing(s *Schedule, gpus []GPU) []*Error {
	out := s.Ineffective(BesideOf(gpus))
	for i := range gpus {
		out = append(out, l.WarningsOf(&gpus[i], s)...)
	}
	return out
}

// Arisen are the warnings that a change made, by what was and is [Layer.Standing]; those of
// what it touched are told in any case. Others were told when they came to be, and the
// reason alone may be another now.
func Arisen(touched, before, after []*Error) []*Error {
	out := slices.Clone(touched)
	for _, w := range after {
		same := func(o *Error) bool { return o.Where == w.Where }
		if !slices.ContainsFunc(before, same) && !slices.ContainsFunc(out, same) {
			out = append(out, w)
		}
	}
	return out
}

// TouchedBy are those of a GPU's warnings that are of keys which the text changes.
func (g *GPU) TouchedBy(text string, of []*Error) (out []*Error) {
	_, values, err := pairs("", text, "", nil)
	if err != nil {
		return nil // which [Change] says
	}
	for _, w := range of {
		for key := range values {
			if w.Where == g.Where(key) {
				out = append(out, w)
			}
		}
	}
	return out
}

// Warnings lists what of the configuration has no effect, or a bad one. A card that is
// given to one guest alone, which an inherited socket does too, shares nothing.
func (l *Layer) Warnings(alone bool) (out []*Error) {
	c := &l.Config
	add := func(more ...*Error) {
		for _, e := range more {
			if e != nil && !slices.ContainsFunc(out, func(o *Error) bool { return *o == *e }) {
				out = append(out, e)
			}
		}
	}
	schedule := c.Schedule()
	beside := BesideOf(c.GPUs)
	for _, o := range options(c) {
		if l.isDefault(o.path) || !l.Given(o.path) || o.isDefault() {
			continue
		}
		if why := l.idle(&o, &schedule, beside, alone); why != "" {
			add(&Error{Where: l.Where(o.path), Value: o.text(), Reason: why})
		}
	}
	if alone || len(c.GPUs) == 0 {
		add(polled(&c.Card.Face, func(key string) string { return l.Where("card." + key) }))
	}
	for i := range c.GPUs {
		add(l.WarningsOf(&c.GPUs[i], &schedule)...)
	}
	return out
}

// idle says why an option that somebody gave has no effect.
func (l *Layer) idle(o *option, s *Schedule, b Beside, alone bool) string {
	c := &l.Config
	key, scheduler := strings.CutPrefix(o.path, schedulerKeys)
	queue := slices.Contains(s.Keys(), o.path) // of limits
	all := func(holds func(f *Face, s *Shadow) bool) bool {
		if alone {
			return holds(&c.Card.Face, &c.Shadow)
		}
		return len(c.GPUs) > 0 && !slices.ContainsFunc(c.GPUs, func(g GPU) bool { return !holds(&g.Face, &g.Shadow) })
	}
	section, _, _ := strings.Cut(o.path, ".")
	doorbells, maps := strings.HasPrefix(o.path, "limits.doorbell-"), strings.HasPrefix(o.path, "limits.map-")
	maps = maps || alone && o.path == "limits.rule-interval" // of one guest the log hears of mapped windows alone
	switch {
	case o.path == "scheduler.policy":
	case alone && (scheduler || section == "shadow" || section == "limits" && !doorbells && !maps):
		return "has no effect: the whole card is one guest's; it is for cards that virtual GPUs share"
	case (scheduler || queue) && s.Policy == SchedulerOff:
		if o.path != "limits.request" || c.Limits.Request > 0 { // no limit is what there is
			return noScheduler + "; " + WithScheduler + ", or leave it out"
		}
	case scheduler:
		return s.idle(key, b)
	case doorbells && all(func(f *Face, _ *Shadow) bool { return f.Doorbell != doorbell.Poll }):
		return "has no effect while no GPU has doorbell: poll"
	case maps && all(func(f *Face, _ *Shadow) bool { return f.BARMap == 0 && f.Doorbell != doorbell.Poll }):
		return "has no effect while no GPU has a bar-map"
	case section == "card", section == "server" && o.path != "server.transport":
		return l.notNative(strings.TrimPrefix(strings.TrimPrefix(o.path, "card."), "server."), o.text())
	}
	return ""
}

// notNative says why an option of what only the native transport does has no effect.
func (l *Layer) notNative(key, value string) string {
	off, native := map[string]string{
		"bar-map": "none", "doorbell": "trap",
		// The library has limits of its own, or none.
		"write-multi": "false", "max-dma-regions": "", "max-dma-mappings": "", "max-dma-size": "", "max-data-size": "",
	}[key]
	if !native || off == value || l.Config.Server.Transport == nativeTransport {
		return ""
	}
	return "has no effect: server.transport is " + l.Config.Server.Transport + "; it is for " + nativeTransport
}

// nativeTransport is the one that maps BARs into a guest and keeps to limits.
const nativeTransport = "native"

// WarningsOf lists what of one virtual GPU has no effect, or a bad one, with the card's
// time shared so.
func (l *Layer) WarningsOf(g *GPU, s *Schedule) (out []*Error) {
	usual := GPU{}
	usual.CardTime.complete()
	defaults := make(map[string]string)
	for _, o := range options(&usual) {
		defaults[o.path] = o.text()
	}
	for _, o := range options(g) {
		if !g.has(o.path) {
			continue
		}
		why := ""
		switch {
		case isCardTime(o.path) && o.text() != defaults[o.path]:
			why = g.idle(o.path, s)
		default:
			why = l.notNative(o.path, o.text())
		}
		if why != "" {
			out = append(out, &Error{Where: g.Where(o.path), Value: o.text(), Reason: why})
		}
	}
	if e := polled(&g.Face, func(key string) string {
		if !g.has(key) && l.Given("card."+key) && !l.isDefault("card."+key) {
			return l.Where("card." + key)
		}
		return g.Where(key)
	}); e != nil {
		out = append(out, e)
	}
	return out
}

// idle says why an option of a GPU's part of the card's time has no effect.
func (g *GPU) idle(key string, s *Schedule) string {
	if s.Policy == SchedulerOff {
		return noScheduler + "; " + WithScheduler + ", or leave it out"
	}
	p := &g.Processes
	// unused tells of a field of the scheduler's nodes.
	unused := func(field string) bool {
		by := sched.UsedBelow(field)
		return by != nil && !slices.ContainsFunc(by, func(p sched.Policy) bool { return p.String() == s.Policy })
	}
	switch {
	case key != policyKey && unused(key), key == policyKey && s.Policy == sched.None.String(), key == policyKey && p.Policy == processesOff && unused("policy"):
		return fmt.Sprintf("has no effect while scheduler.policy is %s", s.Policy)
	case key == "weight" && s.Hierarchy == sched.Flat.String():
		return "has no effect while scheduler.hierarchy is flat: processes compete by weights of their own"
	case key == policyKey && p.Policy == processesWeighted && len(p.Weights) == 0:
		return "has no effect without processes.weights: all weigh the same, as with equal"
	case key == weightsKey && len(p.Weights) > 0 && p.Policy != processesWeighted:
		return fmt.Sprintf("has no effect while processes.policy is %s; set it to %s", p.Policy, processesWeighted)
	case key == weightsKey && len(p.Weights) > 0 && unused("weight"):
		return fmt.Sprintf("has no effect while scheduler.policy is %s", s.Policy)
	}
	return ""
}

// polled warns of doorbells that are mapped where other windows are not: QEMU then
// waits for each write that is trapped, as it does not while nothing is mapped. Reads are
// always waited for, so the ROM makes no difference.
func polled(f *Face, where func(key string) string) *Error {
	written := homes.Map(homes.MapBAR1 | homes.MapBAR3 | homes.MapPRAMIN)
	left := written &^ f.BARMap
	if f.Doorbell != doorbell.Poll || left == 0 {
		return nil
	}
	e := &Error{Where: where("doorbell"), Value: f.Doorbell.String()}
	if f.BARMap == homes.MapNone {
		e.Reason = "is slow with bar-map: none: QEMU waits for every write of the guest as soon as anything is mapped, and the doorbells are; " +
			"work took a guest about four times as long as with trap"
	} else {
		e.Reason = fmt.Sprintf("is slow with bar-map: %v: QEMU waits for every write of the guest to what is not mapped (%v)", f.BARMap, left)
	}
	e.Reason += "; set bar-map to all, or doorbell to trap"
	return e
}

// list is how policies are listed.
func list(of []sched.Policy) string {
	names := make([]string, len(of))
	for i, p := range of {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}

// text is the option's value as it is written.
func (o *option) text() string {
	if d, ok := o.value.Interface().(time.Duration); ok {
		return d.String()
	}
	return fmt.Sprint(o.value.Interface())
}

// textOf is the value of the option at path.
func (l *Layer) textOf(path string) string {
	for _, o := range options(&l.Config) {
		if o.path == path {
			return o.text()
		}
	}
	return ""
}

// isDefault tells whether the option says what is said when nobody says anything.
func (o *option) isDefault() bool {
	text, ok := o.tag.Lookup("def")
	if !ok {
		return false
	}
	usual := *o
	usual.value = reflect.New(o.value.Type()).Elem()
	if err := usual.set(text); err != nil {
		panic(fmt.Sprintf("config: default of %s: %v", o.path, err))
	}
	return usual.text() == o.text()
}
