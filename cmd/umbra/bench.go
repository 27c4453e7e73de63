package main

type benchCmd struct {
	Run   benchRunCmd   `cmd:"" default:"withargs" help:"Measure scenarios with every set-up by turns; the default."`
	Show  benchShowCmd  `cmd:"" help:"Show the report of a run, or compare two."`
	Traps benchTrapsCmd `cmd:"" help:"Measure what an access to a trapped register costs, over the bare socket and through QEMU."`
}
