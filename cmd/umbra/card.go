package main

import (
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/hostcards"
)

type cardCmd struct {
	Probe cardProbeCmd `cmd:"" help:"List the cards of this machine that umbra serve can serve, and what is missing."`
}

type cardProbeCmd struct {
	User string `placeholder:"NAME" default:"nobody" help:"User who shall use the files of the NVIDIA driver, as in umbra serve, if root asks."`
	JSON bool   `name:"json" help:"Write JSON, as docs/control-api.md describes it."`
}

func (c *cardProbeCmd) Run(out output) error {
	name := c.User
	if os.Geteuid() != 0 {
		me, err := user.Current()
		if err != nil {
			return err
		}
		name = me.Username
	}
	r, err := hostcards.Machine{RM: nvrm.Host{}, User: name}.Probe()
	if err != nil {
		return &config.Error{Where: "--user", Value: name, Reason: err.Error()}
	}
	if c.JSON {
		return writeIndented(out.stdout, r)
	}
	_, err = io.WriteString(out.stdout, cardsText(&r))
	return err
}

// cardsText describes a machine's cards.
func cardsText(r *hostcards.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "software card: %s for programs, with %s vectors\n", plural(uint64(r.Software.Processors), "processor", "processors"), r.Software.Vectors)
	switch d := r.Driver; {
	case len(r.Cards) == 0:
		b.WriteString("There is no NVIDIA GPU.\n")
	case d != nil && d.Tried:
		fmt.Fprintf(&b, "NVIDIA driver %s, which was tried\n", d.Release)
	case d != nil:
		fmt.Fprintf(&b, "NVIDIA driver %s, which was never tried\n", d.Release)
	}
	t := newTable(&b, "NVIDIA GPUs", "index\tname\tgeneration\tmemory free\tof\tPCI address\tuse")
	for _, c := range r.Cards {
		index, use := "-", c.Why
		if c.Index >= 0 {
			index = fmt.Sprint(c.Index)
		}
		if c.Usable {
			use = fmt.Sprintf("umbra serve --kind nvidia --index %d", c.Index)
		}
		t.row("%s\t%s\t%s\t%v\t%v\t%s\t%s", index, c.Name, c.Generation, config.Size(c.Free&^(1<<20-1)), config.Size(c.Total&^(1<<20-1)), c.PCI, use)
	}
	t.flush()
	t = newTable(&b, "Files of the NVIDIA driver", "path\tmode\tuser\tmay use it")
	for _, f := range r.Files {
		t.row("%s\t%s\t%s\t%v", f.Path, f.Mode, f.User, map[bool]string{true: "yes", false: "no"}[f.May])
	}
	t.flush()
	t = newTable(&b, "What is missing", "what\tcommand")
	for _, m := range r.Missing {
		t.row("%s\t%s", m.What, m.Command)
	}
	t.flush()
	return b.String()
}
