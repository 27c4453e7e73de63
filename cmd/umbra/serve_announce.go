package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// announce writes what is served, and how QEMU attaches.
func announce(out *stdout, c *config.Config, s *serve.Server, lacks []string) error {
	a := api.Serving{Event: "serving", Control: c.Control, Settings: config.Settings(c), Lacks: lacks, PID: os.Getpid()}
	if s.Whole != nil && s.Whole.Config.Socket != "" {
		a.Socket = s.Whole.Config.Socket
		a.QEMU = qemuArgs(a.Socket)
	}
	for i := range c.GPUs {
		g := &c.GPUs[i]
		a.GPUs = append(a.GPUs, api.ServingGPU{Name: g.Name, Socket: g.Socket, Settings: config.Settings(g), QEMU: qemuArgs(g.Socket)})
	}
	return out.write(a, servingText(c, &a, s.Whole != nil))
}

func servingText(c *config.Config, a *api.Serving, whole bool) string {
	var b strings.Builder
	least := "256MiB"
	if c.Card.Kind == config.Nvidia {
		least = "4GiB"
	}
	b.WriteString(cardText(c) + "\n")
	with := " --control " + c.Control
	if c.Control == api.DefaultPaths()[0] {
		with = ""
	}
	if !c.Card.Engines {
		b.WriteString("card.engines is off: engines accept every method and do nothing\n")
	}
	const attach = "QEMU (10.1 or newer) attaches with these arguments, beside those for its disk or kernel:"
	switch {
	case len(a.GPUs) > 0:
		t := newTable(&b, "Virtual GPUs", "name\tchip\tVRAM\tchannels\tinterrupts\tsocket")
		for i := range c.GPUs {
			g := &c.GPUs[i]
			t.row("%s\t%s\t%v\t%d\t%s\t%s", g.Name, g.Chip, g.VRAM, g.Channels, interruptsOf(&g.Face), g.Socket)
		}
		t.flush()
		fmt.Fprintf(&b, "\n%s\n\n%s", attach, shellLines(a.GPUs[0].QEMU))
		if len(a.GPUs) > 1 {
			b.WriteString("\nThese are for the first GPU; for another, replace the socket's path.\n")
		}
	case !whole:
		fmt.Fprintf(&b, "no virtual GPUs yet; this makes one:\n\n  umbra gpu add%s name=a socket=a.sock vram=%s\n", with, least)
	case a.Socket == "":
		b.WriteString("serving the client on the inherited descriptor\n")
	default:
		fmt.Fprintf(&b, "serving at %s\n\n%s\n\n%s", a.Socket, attach, shellLines(a.QEMU))
	}
	if c.Control != "" {
		fmt.Fprintf(&b, "\numbra status, gpu list, sched show and regs look into it%s\n", strings.Replace(with, " --", " with --", 1))
	}
	if len(a.Lacks) > 0 {
		fmt.Fprintf(&b, "\nServed by %s, which lacks what the native transport has:\n", c.Server.Transport)
		for _, l := range a.Lacks {
			fmt.Fprintf(&b, "  %s\n", l)
		}
	}
	b.WriteString("\nInterrupt it (ctrl-C) to stop.\n")
	return b.String()
}

func cardText(c *config.Config) string {
	switch {
	case c.Card.Kind != config.Nvidia:
		return fmt.Sprintf("GF100 in software (%04x:%v), %v of VRAM, %s", gf100.VendorID, c.Card.Device, c.Card.VRAM, interruptsOf(&c.Card.Face))
	case c.Card.VRAM == 0: // not open
		return fmt.Sprintf("NVIDIA card %d", c.Card.Index)
	}
	return fmt.Sprintf("NVIDIA card %d, %v of VRAM", c.Card.Index, c.Card.VRAM)
}

func interruptsOf(f *config.Face) string {
	if f.MSI {
		return "MSI"
	}
	return "INTx"
}
