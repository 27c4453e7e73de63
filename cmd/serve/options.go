package serve

import (
	"log/slog"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/config"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/pci"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// gf100Of is what a guest sees of a GF100, by options that a user wrote as at says.
func gf100Of(f *config.Face, vram config.Size, at optionName) (out devgf100.Config, err error) {
	temperature := f.Temperature
	out = devgf100.Config{TPCs: f.TPCs, Temperature: func() int { return temperature }, PCI: pci.Options{
		BAR1: uint64(f.BAR1), BAR3: uint64(f.BAR3), NoMSI: !f.MSI,
		Device: uint16(f.Device), SubsystemVendor: uint16(f.Subsystem.Vendor), Subsystem: uint16(f.Subsystem.ID),
	}}
	if _, err := gf100.NewFace(gf100.FaceConfig{VRAM: uint64(vram), TPCs: f.TPCs}); err != nil {
		return out, &config.Error{Where: at("tpcs"), Value: f.TPCs.String(), Reason: err.Error()}
	}
	if f.ROM == "" {
		out.ROM, err = firmware.Build(firmware.Options{Device: uint16(f.Device)})
		return out, err
	}
	if out.ROM, err = config.ReadInput(f.ROM); err == nil {
		_, err = firmware.Load(out.ROM, gf100.VendorID, uint16(f.Device))
	}
	if err != nil {
		return out, &config.Error{Where: at("rom"), Value: f.ROM, Reason: err.Error()}
	}
	return out, nil
}

// cardOf is the card that the options describe. Those of another chip say nothing about it: they are for
// its guests.
func cardOf(c *config.Config) (soft.Config, error) {
	o := &c.Card
	shown := o.Face
	if !chips[o.Chip].card {
		shown = config.DefaultFace(GF100{}.Name())
	}
	face, err := gf100Of(&shown, min(o.VRAM, gf100.MaxVRAM), func(key string) string { return c.Where("card." + key) })
	return soft.Config{
		VRAM: uint64(o.VRAM), ROM: face.ROM, PCI: face.PCI, TPCs: face.TPCs, Temperature: face.Temperature, DisableEngines: !o.Engines, Slice: o.Slice,
	}, err
}

// GPUOf is the virtual GPU that the options describe.
func GPUOf(g *config.GPU) (GPUConfig, error) {
	device, err := chips[g.Chip].of(&g.Face, g.Memory(), g.Where)
	return GPUConfig{
		Share: aggregator.GuestConfig{
			Name: g.Name, VRAM: uint64(g.Memory()), Channels: g.Channels, Guaranteed: g.Guaranteed, Tables: uint64(g.Tables), Shadow: g.Shadow.Policy(),
			Map: g.BARMap, Share: g.CardTime.Node(), Group: g.CardTime.Grouping(),
		},
		Device: device, Socket: g.Socket, Options: *g,
	}, err
}

// errorBurst is how many seconds' worth of errors a guest may cause at once.
const errorBurst = 8

// LimitsOf are the limits of the aggregator that the options describe, and how it
// shares the card's time.
func LimitsOf(c *config.Config) (aggregator.Options, error) {
	o := &c.Limits
	now := c.Schedule()
	schedule, err := now.Config()
	return aggregator.Options{
		Guests:     o.Guests,
		ErrorBurst: errorBurst * float64(o.ErrorRate), ErrorRate: float64(o.ErrorRate), TableRate: float64(o.TableRate),
		Map: aperture.Limits{Aliases: o.MapAliases, Runs: o.MapRuns}, Scheduler: schedule,
	}, err
}

// planTransport plans the transport that the options describe, and its limits.
func (p *Plan) planTransport(log *slog.Logger) (err error) {
	c := p.config
	o := &c.Server
	p.options = vfiouser.Options{NoWriteMulti: !o.WriteMulti, AnyDMAFile: o.DMAAnyFile, Log: log}
	if o.Transport == TransportNative { // the library maps by itself
		p.options.MaxDMARegions = o.MaxDMARegions
		mappings, err := c.ClientPart(config.ClientMappings, uint64(card.SystemMappings()), p.whole)
		if err != nil {
			return err
		}
		p.options.MaxDMAMappings = int(mappings)
		if p.options.MaxDMAMemory, err = c.ClientPart(config.ClientMemory, addressSpace(), p.whole); err != nil {
			return err
		}
		if err = c.FitAddresses(c.GPUs, config.Size(addressSpace())); err != nil {
			return err
		}
		if p.options.MaxDMAAlloc, err = clientAlloc(c, p.whole, log); err != nil {
			return err
		}
	}
	if p.Make, p.Lacks, err = TransportNamed(o.Transport); err != nil {
		return &config.Error{Where: c.Where("server.transport"), Value: o.Transport, Reason: err.Error()}
	}
	return nil
}
