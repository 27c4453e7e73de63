package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

type schedShowCmd struct {
	server
}

func (c *schedShowCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	s, err := client.Schedule(ctx)
	if err != nil {
		return err
	}
	return c.write(out, s, scheduleText(&s)+ledgerText(s.Ledger))
}

type schedSetCmd struct {
	server
	What []string `arg:"" name:"key=value" help:"What to change: policy=band credit.period=10ms limits.request=2s. umbra sched show lists the keys."`
}

func (c *schedSetCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	s, err := client.SetSchedule(ctx, api.SetRequest{Options: strings.Join(c.What, ",")})
	if err != nil {
		return err
	}
	text := scheduleText(&s)
	if len(s.Was) == 0 {
		text = "unchanged: what was set is so already\n" + text
	}
	return c.write(out, s, text)
}

// scheduleText says how the card's time is shared. Parameters of other policies than
// the one in force stand there too: they count when it is changed.
func scheduleText(s *api.Schedule) string {
	defaults := config.Defaults()
	schedule := defaults.Config.Schedule()
	usual := schedule.Values()
	var b strings.Builder
	fmt.Fprintf(&b, "Card time is shared by %v\n", s.Options["policy"])
	head := "key\tvalue\tdefault"
	if len(s.Was) > 0 { // by this change
		head += "\twas"
	}
	t := newTable(&b, "Parameters", head)
	for _, key := range schedule.Keys() {
		row := fmt.Sprintf("%s\t%s\t%v", key, optionText(s.Options[key]), usual[key])
		if before, changed := s.Was[key]; changed {
			row += "\t" + optionText(before)
		}
		t.row("%s", row)
	}
	t.flush()
	t = newTable(&b, "What GPUs are to have", "name\tweight\tcap\tpriority")
	for i := range s.Shares {
		g := &s.Shares[i]
		t.row("%s\t%d\t%s\t%d", g.Name, g.Weight, percent(g.Cap), g.Priority)
	}
	t.flush()
	counts := countsOf(s)
	t = newTable(&b, "What should not have happened", "what\ttimes")
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[what]; n > 0 {
			t.row("%s\t%d", what, n)
		}
	}
	t.flush()
	return b.String()
}

// optionText is a value as its key takes it. JSON's numbers come as float64, which
// would print a million with an exponent.
func optionText(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// countsOf are the scheduler's counts in words.
func countsOf(s *api.Schedule) map[string]uint64 {
	c := s.Counts
	if c == nil {
		return nil
	}
	return map[string]uint64{
		"times that went backwards":                         c.Backwards,
		"events of channels that are not there":             c.UnknownChannel,
		"entries done that were not on the card":            c.UnknownWork,
		"busy times that cannot be":                         c.BadTime,
		"entries over their guest's limits.queued":          c.Refused,
		"channels and processes over limits.creations":      c.Storms,
		"processes over limits.groups, which share a place": c.Overflow,
		"requests that ran for too long and were ended":     c.Runaways,
		"channels that the card did not let go of in time":  c.Stuck,
		"samples of dfq that a wait for a semaphore spoilt": c.Invalid,
	}
}

// ledgerText is the books as a tree: what each node had, all engines together.
func ledgerText(n *serve.LedgerNode) string {
	if n == nil {
		return ""
	}
	var b strings.Builder
	head := "who\tweight\tof the above"
	for i := range n.Engines {
		head += "\t" + n.Engines[i].Engine
	}
	t := newTable(&b, "Who had how much", head+"\twaited\trequests\tentries\theld\toverrun\tnow")
	ledgerRows(t, n, nil, 0)
	t.flush()
	return b.String()
}

func ledgerRows(t *table, n, above *serve.LedgerNode, depth int) {
	var part, now string
	if above != nil {
		part = partOf(n.Engines, above.Engines)
	}
	switch {
	case n.Blocked != "":
		now = n.Blocked
	case n.Waiting+n.OnCard > 0:
		now = fmt.Sprintf("%d on the card, %d wait", n.OnCard, n.Waiting)
	}
	weight := ""
	if n.Kind != "card" && n.Kind != "channel" {
		weight = fmt.Sprint(n.Weight)
	}
	ledgerRow(t, depth, n.Name, weight, part, n.Engines, now)
	for i := range n.Children {
		ledgerRows(t, &n.Children[i], n, depth+1)
	}
	if n.Gone != nil {
		ledgerRow(t, depth+1, "(gone)", "", partOf(n.Gone, n.Engines), n.Gone, "")
	}
}

func ledgerRow(t *table, depth int, name, weight, part string, engines []serve.EngineAccount, now string) {
	a := serve.Sum(engines)
	row := strings.Repeat("  ", depth) + name + "\t" + weight + "\t" + part
	for i := range engines {
		row += "\t" + short(engines[i].Busy).String()
	}
	t.row("%s", strings.TrimRight(fmt.Sprintf("%s\t%v\t%d\t%d\t%d\t%v\t%s", row, short(a.Wait), a.Requests, a.Entries, a.Held, short(a.Overrun), now), "\t"))
}

// partOf is what of the time that engines worked for a node they worked for a child.
func partOf(child, parent []serve.EngineAccount) string {
	c, p := serve.Sum(child), serve.Sum(parent)
	if p.Busy == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(c.Busy)/float64(p.Busy))
}
