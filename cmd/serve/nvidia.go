package serve

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// openNvidia opens the card of the host's NVIDIA driver that the options describe.
func openNvidia(c *config.Card, log func(format string, args ...any)) (card.GPU, error) {
	process := worker.Config{Command: []string{"/proc/self/exe", "card-worker"}, Minor: c.Index, AnyDriver: c.AnyDriver, User: c.User, Log: log}
	gpu, err := rm.Open(rm.Config{Log: log}, func(_ int, ev worker.Events) (*worker.Worker, error) { return worker.Start(process, ev) })
	if err != nil {
		return nil, fmt.Errorf("card nvidia%d: %w; umbra card probe says what is missing", c.Index, err)
	}
	return gpu, nil
}

// shareNvidia opens the card, holds the GPUs against its memory, which is known now, and shares it.
func (p *Plan) shareNvidia() (*Shared, error) {
	gpu, err := p.nvidia()
	if err != nil {
		return nil, err
	}
	c := p.config
	const unit = 1 << 20
	c.Card.VRAM = config.Size(gpu.FreeBytes() &^ (unit - 1))
	if err = c.Fit(c.GPUs); err == nil && p.options.MaxDMAMemory > 0 { // else the library maps by itself
		err = c.FitAddresses(c.GPUs, config.Size(addressSpace()))
	}
	if err != nil {
		gpu.Close()
		return nil, err
	}
	return ShareGPU(gpu, p.Make, p.options, p.limits)
}
