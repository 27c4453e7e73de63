package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
)

type gpuShowCmd struct {
	server
	Name string `arg:"" help:"Its name."`
}

func (c *gpuShowCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	g, err := client.Show(ctx, c.Name)
	if err != nil {
		return err
	}
	return c.write(out, g, shownText(&g))
}

// shownText is everything about a GPU for a person.
func shownText(g *api.Shown) string {
	var b strings.Builder
	b.WriteString(gpuLines([]api.GPU{g.GPU}))
	t := newTable(&b, "Options; what is live is changed by umbra gpu set", "key\tvalue\tlive")
	for _, s := range g.Settings {
		live := ""
		if s.Live {
			live = "live"
		}
		t.row("%s\t%s\t%s", s.Key, optionText(s.Value), live)
	}
	t.flush()
	countsText(&b, g.Counts)
	inexactText(&b, g.Inexact)
	if g.ShadowNS > 0 {
		fmt.Fprintf(&b, "\nSpent on the shadows of its page tables: %v\n", short(time.Duration(g.ShadowNS)))
	}
	return b.String()
}
