package main

import (
	"path/filepath"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
)

// chip is what differs between guests.
type chip struct {
	name, shows string
	lab         string   // in lab.Config
	kernels     []string // that know it
	usual       string   // kernels of a run that names none

	option string // its memory in the configuration
	vram   uint64 // all that a guest sees
	card   int    // MiB of the card that it takes with its page tables

	suites  []string          // commands of verified copies
	mover   string            // the engine of other copies
	classes map[string]string // of the engines that copies name, as the server writes them
	window  uint32            // the register that places the processor's window

	// With a C compiler guests have Mesa, and a program in C.
	mesa, api, source string
	argv              []string
	memory            int // MiB without Mesa; 0 for the lab's
}

var chips = []*chip{
	{
		name: "gf100", shows: "GF100", kernels: lab.Kernels, usual: "6.1,6.12", memory: 512,
		option: "128MiB", vram: 128 << 20, card: 256,
		suites: []string{proto.CmdM2MF, proto.CmdCE}, mover: "m2mf", classes: map[string]string{"m2mf": "9039", "ce0": "90b5", "ce1": "90b8"},
		window: 0x001700,
		mesa:   "25", api: "OpenCL", source: "tests/shim/programs/primes.c", argv: []string{"primes", "10000"},
	},
	{
		name: "gh100", shows: "GH100", lab: lab.ChipGH100, kernels: lab.KernelsGH100, usual: "7.2,7.2",
		option: "4GiB", vram: 4<<30 + gsp.Reserved, card: 4352,
		suites: []string{proto.CmdCE, proto.CmdExec}, mover: "copy", classes: map[string]string{"copy": "c8b5", "exec": "c8b5"},
		window: 0x10fd40,
		// Mesa's OpenCL and OpenGL need launches, which the software card does not have for this chip.
		mesa: "26", api: "Vulkan", source: "tests/e2e/programs/vulkan/timeline.c", argv: []string{"timeline"},
	},
}

// machine is a guest's with a kernel.
func (c *chip) machine(kernel string, mesa bool) (lab.Config, error) {
	m := lab.Config{Kernel: kernel, Chip: c.lab, CPUs: 1, Memory: c.memory, Reboot: true}
	if !mesa {
		return m, nil
	}
	src, err := image.Source()
	m.Mesa, m.Memory, m.Programs = c.mesa, 0, []string{filepath.Join(src, c.source)}
	return m, err
}
