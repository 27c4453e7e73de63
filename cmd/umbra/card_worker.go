package main

import (
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

type cardWorkerCmd struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

func (c *cardWorkerCmd) Run() error {
	return worker.Main(worker.System{System: nvrm.Host{}}, c.Args)
}
