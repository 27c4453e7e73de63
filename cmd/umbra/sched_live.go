package main

import (
	"context"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
)

type schedShowCmd struct {
	server
}

func (c *schedShowCmd) Run(ctx context.Context, out output) error {
	s, err := ask(&c.server, func(k *api.Client) (api.Scheduler, error) { return k.Scheduler(ctx) })
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(schedulerText(&s))
	ledgerText(&b, s.Ledger)
	return c.write(out, s, b.String())
}

type schedSetCmd struct {
	server
	What []string `arg:"" name:"key=value" help:"Options to change: policy=band credit.period=10ms limits.request=2s. umbra sched show lists the keys."`
}

func (c *schedSetCmd) Run(ctx context.Context, out output) error {
	s, err := ask(&c.server, func(k *api.Client) (api.Scheduler, error) {
		return k.SetScheduler(ctx, api.SetRequest{Options: strings.Join(c.What, ",")})
	})
	if err != nil {
		return err
	}
	text := schedulerText(&s)
	if len(s.Changes) == 0 {
		text = "unchanged: the options have these values already\n" + text
	}
	return c.write(out, s, text)
}
