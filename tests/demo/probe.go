package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
)

// subject is the kernel that a guest runs.
type subject struct {
	nouveau.Kernel
	known bool // it has a row
}

func subjectOf(release string) subject {
	k, known := nouveau.Of(release)
	return subject{k, known}
}

// probed is what a probe showed.
type probed struct {
	wall, inGuest time.Duration
	mover         string   // what nouveau says it moves buffers with
	irq           string   // MSI or INTX
	said          []string // by nouveau, of its card
}

// probe loads nouveau and wants what a whole card shows of itself.
func (s *stage) probe(c *check, g guest, k subject) probed {
	var r probed
	var m proto.MarkResult
	s.ask(c, g, proto.CmdMark, nil, &m)
	var loaded proto.ModprobeResult
	at := time.Now()
	s.ask(c, g, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &loaded)
	r.wall = time.Since(at)
	if n := len(loaded.Loaded); n > 0 {
		r.inGuest = time.Duration(loaded.Loaded[n-1].InitNS)
	}
	log := s.kernelLog(c, g, m.Seq)
	for _, l := range log {
		if text, ok := aboutCard(l); ok {
			r.said = append(r.said, fmt.Sprintf("[%9.6f] %s", l.Time.Seconds(), text))
		}
	}
	var dri proto.DRIResult
	s.ask(c, g, proto.CmdDRI, nil, &dri)
	for _, want := range []string{"card0", "renderD128"} {
		c.want(slices.ContainsFunc(dri.Nodes, func(n proto.DRINode) bool {
			return filepath.Base(n.Path) == want && n.Driver == "nouveau"
		}), "there is no /dev/dri/%s of nouveau's", want)
	}
	var pci proto.PCIResult
	s.ask(c, g, proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &pci)
	c.want(len(pci.Functions) == 1, "%d NVIDIA functions on the bus, want 1", len(pci.Functions))
	for _, f := range pci.Functions {
		c.want(f.Driver == "nouveau", "%s is driven by %q", f.Address, f.Driver)
		r.irq = strings.ToUpper(f.IRQMode)
	}
	switch movers := nouveau.Movers(log); {
	case len(movers) != 1:
		c.fail("nouveau says %d times what it moves buffers with, want once", len(movers))
	default:
		r.mover = movers[0]
		c.want(!k.known || r.mover == k.MoverName, "nouveau moves buffers with %s, want %s", r.mover, k.MoverName)
	}
	k.judgeLog(c, log)
	c.Detail = fmt.Sprintf("/dev/dri/card0 and renderD128, %s, buffers moved by %s", r.irq, r.mover)
	return r
}

// judgeLog wants no line of nouveau's of level warning or worse in the log of one
// probe but the kernel's known ones. A kernel without a row is not judged.
func (k *subject) judgeLog(c *check, log []lab.LogLine) {
	if k.known {
		c.Problems = append(c.Problems, k.Problems(log, 1)...)
	}
}

// aboutCard picks nouveau's lines about the card, without the device's name.
func aboutCard(l lab.LogLine) (string, bool) {
	for _, prefix := range []string{"nouveau 0000:", "[drm] Initialized nouveau"} {
		if !strings.HasPrefix(l.Text, prefix) {
			continue
		}
		if strings.HasPrefix(l.Text, "[drm]") {
			return l.Text, true
		}
		_, text, ok := strings.Cut(l.Text, ": ")
		return text, ok
	}
	return "", false
}

// verified is what a guest found right.
type verified struct {
	bytes  map[string]uint64 // by engine
	copies uint64
}

// copySuite has a guest run one of its suites of copies, and wants all of them to
// come out right.
func (s *stage) copySuite(c *check, g guest, cmd string, args proto.CopyArgs) verified {
	var r proto.CopyResult
	s.ask(c, g, cmd, args, &r)
	v := verified{bytes: map[string]uint64{}}
	for _, k := range r.Cases {
		engine, _, _ := strings.Cut(k.Name, " ")
		if k.OK {
			v.bytes[engine] += k.Bytes
			v.copies++
		}
	}
	c.want(len(r.Cases) > 0 && r.Failed == 0, "%d of %d cases came out wrong", r.Failed, len(r.Cases))
	return v
}
