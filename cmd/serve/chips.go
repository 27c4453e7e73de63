package serve

import (
	"fmt"
	"maps"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	facegf100 "github.com/umbra-gpu/umbra/aggregator/face/gf100"
	facegh100 "github.com/umbra-gpu/umbra/aggregator/face/gh100"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/devmodel"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	devgh100 "github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/mmio/pci"
)

// VGPU is a virtual GPU of any chip.
type VGPU interface {
	function
	AttachHost(devmodel.Host)
	ROM() []byte
	Close()
}

// Chip describes a virtual GPU, and makes it.
type Chip interface {
	// Name is that of the chip in the configuration.
	Name() string
	// New makes the virtual GPU with so much memory, with the card's parameters of culling by depth. Lines for the operator go to log, which must
	// not block.
	New(vram uint64, cull card.Culling, log func(format string, args ...any)) (Shown, error)
}

// Shown is what a guest sees: a virtual GPU with its face at the aggregator.
type Shown struct {
	GPU  VGPU
	Face aggregator.Face
	join func(*aggregator.Guest) // connects both to the share that the face got
	poll uint64                  // bytes of the area in BAR1 with doorbells
	// unsupported lists the calls, controls and classes that the emulation lacks.
	unsupported func() []api.Unsupported
}

// GF100 and GH100 are the chips.
type (
	GF100 devgf100.Config
	GH100 devgh100.Config
)

// Name implements Chip.
func (GF100) Name() string { return "gf100" }
func (GH100) Name() string { return "gh100" }

// New implements Chip.
func (c GF100) New(vram uint64, _ card.Culling, _ func(string, ...any)) (Shown, error) {
	gpu, err := devgf100.New(devgf100.Config(c), vram)
	if err != nil {
		return Shown{}, err
	}
	face := facegf100.New(gpu)
	return Shown{gpu, face, func(g *aggregator.Guest) { face.Connect(g); gpu.Connect(face) }, gf100.PollSize, func() []api.Unsupported { return nil }}, nil
}

// New implements Chip.
func (c GH100) New(vram uint64, cull card.Culling, log func(string, ...any)) (Shown, error) {
	c.Culling, c.Log = gsp.Culling(cull), log
	gpu, err := devgh100.New(devgh100.Config(c), vram)
	if err != nil {
		return Shown{}, err
	}
	face := facegh100.New(gpu)
	unsupported := func() (list []api.Unsupported) {
		for _, u := range gpu.Unsupported() {
			list = append(list, api.Unsupported(u))
		}
		return list
	}
	return Shown{gpu, face, func(g *aggregator.Guest) { face.Connect(g); gpu.Connect(face) }, 0, unsupported}, nil
}

// optionName names an option as the user wrote it.
type optionName = func(key string) string

// chips are the chips by name. A row says how options describe one.
var chips = map[string]struct {
	least uint64 // that it can have of memory
	card  bool   // the software card is one, and one guest can have it whole
	of    func(f *config.Face, vram config.Size, at optionName) (Chip, error)
}{
	GF100{}.Name(): {64 << 20, true, func(f *config.Face, vram config.Size, at optionName) (Chip, error) {
		c, err := gf100Of(f, vram, at)
		return GF100(c), err
	}},
	GH100{}.Name(): {4<<30 + gsp.Reserved, false, gh100Of},
}

// models are the device ids of a GH100.
var models = map[string]uint16{"h100": gh100.DeviceH100, "h200": gh100.DeviceH200}

func gh100Of(f *config.Face, vram config.Size, at optionName) (Chip, error) {
	c := GH100{TPCs: f.TPCs, PCI: pci.Options{BAR1: uint64(f.BAR1), NoMSI: !f.MSI, Device: models[f.Model]}}
	if err := gsp.CheckTPCs(f.TPCs); err != nil {
		return nil, &config.Error{Where: at("tpcs"), Value: f.TPCs.String(), Reason: err.Error()}
	}
	made, err := c.New(uint64(vram), card.Culling{}, nil)
	if err != nil {
		return nil, err
	}
	made.GPU.Close()
	return c, nil
}

// Chips lists the names of the chips.
func Chips() []string { return slices.Sorted(maps.Keys(chips)) }

// RegistersOf is the register space of a chip.
func RegistersOf(name string) (*mmio.Space, error) {
	row, ok := chips[name]
	if !ok {
		return nil, fmt.Errorf("no chip %q; %s", name, config.Known(name, Chips()))
	}
	usual := config.DefaultFace(name)
	c, err := row.of(&usual, config.Size(row.least), func(key string) string { return key })
	if err != nil {
		return nil, err
	}
	made, err := c.New(row.least, card.Culling{}, nil)
	if err != nil {
		return nil, err
	}
	made.GPU.Close()
	return made.GPU.Registers(), nil
}

// RegisterName names the register of a chip at an offset of BAR0.
func RegisterName(chip string, off uint32) (string, error) {
	s, err := RegistersOf(chip)
	if err != nil {
		return "", err
	}
	return s.NameOf(off), nil
}
