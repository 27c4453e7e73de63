package main

import (
	"context"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/control"
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
	out.warn(g.Warnings)
	return c.write(out, g, shownText(&g))
}

// shownText is everything about a GPU for a person.
func shownText(g *control.Shown) string {
	var b strings.Builder
	b.WriteString(gpuLines([]control.GPU{g.GPU}))
	t := newTable(&b, "Options; what is live is changed by umbra gpu set", "key\tvalue\tlive\tsaid by")
	for _, s := range g.Settings {
		live := ""
		if s.Live {
			live = "live"
		}
		t.row("%s\t%s\t%s\t%s", s.Key, optionText(s.Value), live, s.From)
	}
	t.flush()
	return b.String()
}
