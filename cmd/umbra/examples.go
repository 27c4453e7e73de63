package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// examples are command lines by command, in its help and its man page. What follows a number sign says what a line does.
var examples = map[string][]string{
	"umbra serve": {
		"umbra serve --control default --gpu name=a,socket=a.sock,vram=256MiB # one virtual GPU, and room for more",
		"umbra serve --config /etc/umbra/umbra.yaml # as the file says",
		"umbra serve --check --config /etc/umbra/umbra.yaml # say what is wrong with the file",
		"umbra serve --socket card.sock # the whole card for one guest",
		"umbra serve --kind nvidia --control default --gpu name=a,socket=a.sock,vram=4GiB # on a card of the NVIDIA driver",
	},
	"umbra status": {"umbra status --json # for programs"},
	"umbra top":    {"umbra top --csv --interval 10s > use.csv # a line for each GPU every ten seconds"},
	"umbra gpu": {
		"umbra gpu add name=b socket=b.sock vram=128MiB # one more GPU",
		"umbra gpu attach b --format libvirt # how a machine attaches",
		"umbra gpu set b weight=200 cap=50 # while its guest runs",
		"umbra gpu inject b lost-interrupt --count 1 # on a server that allows it",
		"umbra gpu remove b --force # also from its guest",
	},
	"umbra config": {"umbra config save /etc/umbra/umbra.yaml # let a restart bring back what there is now"},
	"umbra reload": {"umbra reload # after a change of the file"},
	"umbra sched": {
		"umbra sched set policy=band band.grace=1ms # while guests run",
		"umbra sched show # parameters, and who had how much",
		"umbra sched simulate --preset in # without a server",
	},
	"umbra regs": {"umbra regs --touched # what guests accessed most", "umbra regs --at 2274 # which register that is"},
	"umbra trace": {
		"umbra trace record a --for 10s a.trace # ten seconds of one guest",
		"umbra trace show a.trace --mmiotrace > a.mmio # for demmio",
		"umbra trace diff good.trace bad.trace # where two runs part",
		"umbra trace export a.trace --perfetto a.json # for ui.perfetto.dev",
	},
	"umbra disasm": {
		"umbra disasm code.bin # its instructions",
		"umbra disasm --asm --block 16,16 code.bin # what this processor executes for them",
	},
	"umbra lab":       {"umbra lab run hello.c # in a guest that is booted for it"},
	"umbra card":      {"umbra card probe # what this machine has, and what is missing"},
	"umbra vfio-user": {"umbra vfio-user probe a.sock # what any server offers", "umbra vfio-user check a.sock # whether it conforms"},
}

// withExamples adds the examples to the help of commands.
func withExamples(n *kong.Node) {
	if lines := examples[n.FullPath()]; lines != nil {
		n.Detail = strings.TrimSpace(n.Detail + "\n\nExamples:\n\n  " + strings.Join(lines, "\n  "))
	}
	for _, c := range n.Children {
		withExamples(c)
	}
}
