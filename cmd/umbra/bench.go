package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

type benchCmd struct {
	Run   benchRunCmd   `cmd:"" default:"withargs" help:"Measure scenarios with every set-up by turns; the default."`
	Show  benchShowCmd  `cmd:"" help:"Show the report of a run, or compare two."`
	Traps benchTrapsCmd `cmd:"" help:"Measure what an access to a trapped register costs, over the bare socket and through QEMU."`
}

// Help says what can be said without naming run, which kong lists there alone.
func (benchCmd) Help() string {
	var b strings.Builder
	b.WriteString("Without a command it is run, and takes its flags:\n\n")
	run := new(benchRunCmd)
	parser, err := kong.New(run, kong.Exit(func(int) {}))
	if err != nil {
		panic(err) // the command itself is wrong
	}
	for _, f := range parser.Model.Flags {
		if f.Name != "help" {
			b.WriteString("    " + f.String() + "\n")
		}
	}
	b.WriteString("\numbra bench run --help says what each is.")
	return b.String()
}
