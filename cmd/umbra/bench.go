package main

type benchCmd struct {
	Traps benchTrapsCmd `cmd:"" help:"Measure what an access to a trapped register costs, over the bare socket and through QEMU."`
}
