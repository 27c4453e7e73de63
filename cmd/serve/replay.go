package serve

import (
	"errors"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/config"
	recording "github.com/umbra-gpu/umbra/cmd/trace"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Fresh makes a GPU of a recording again: on a software card of its own, without a socket, as it was before its first guest.
// close ends it.
func Fresh(h *recording.Header, gpu int) (d *Device, end func() error, err error) {
	c := config.Default()
	if err := c.Parse("the configuration in the recording", []byte(h.Config)); err != nil {
		return nil, nil, err
	}
	if c.Card.Kind == config.Nvidia { // the software card has the same chip for guests, and needs room for them
		c.Card.Kind, c.Card.VRAM = config.Soft, 64<<30
	}
	if err := c.Check(); err != nil {
		return nil, nil, err
	}
	is, err := cardOf(c)
	if err != nil {
		return nil, nil, err
	}
	made, err := soft.New(is)
	if err != nil {
		return nil, nil, err
	}
	if h.GPUs[gpu].Whole {
		return NewPassThrough(made, passthrough.Config{}), made.Close, nil
	}
	v, s, err := freshVirtual(made, c, h.GPUs[gpu].Name)
	if err != nil {
		return nil, nil, errors.Join(err, made.Close())
	}
	return v.Device, func() error { return errors.Join(v.Close(), s.Close(), made.Close()) }, nil
}

func freshVirtual(on *soft.Card, c *config.Config, name string) (*Virtual, *Shared, error) {
	i := slices.IndexFunc(c.GPUs, func(g config.GPU) bool { return g.Name == name })
	if i < 0 {
		return nil, nil, fmt.Errorf("the configuration in the recording has no GPU %s", name)
	}
	cfg, err := GPUOf(&c.GPUs[i])
	if err != nil {
		return nil, nil, err
	}
	limits, err := LimitsOf(c)
	if err != nil {
		return nil, nil, err
	}
	s, err := NewShared(on, Native, vfiouser.Options{}, limits, driver.Options{})
	if err != nil {
		return nil, nil, err
	}
	v, err := NewVirtual(s.agg, cfg.Share, cfg.Device)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return v, s, nil
}
