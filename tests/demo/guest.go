package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
)

// guest is a machine with what it verified so far.
type guest struct {
	name, version, release string
	kernel                 nouveau.Kernel
	known                  bool // kernel has a row

	vm       *lab.VM
	copies   uint64
	verified map[string]uint64 // bytes, by class: "9039"
}

// classes of the engines that the guest's copies name.
var classes = map[string]uint16{"m2mf": nouveau.ClassM2MF, "ce0": nouveau.ClassCE0, "ce1": nouveau.ClassCE1}

func (g *guest) add(engine string, copies, bytes uint64) {
	g.copies += copies
	g.verified[fmt.Sprintf("%04x", classes[engine])] += bytes
}

// bytes is the sum of the verified ones.
func (g *guest) bytes() (n uint64) {
	for _, b := range g.verified {
		n += b
	}
	return n
}

// ask runs a command in the guest. An error is a problem of the check.
func (d *demo) ask(c *check, g *guest, cmd string, args, result any) bool {
	err := g.vm.Agent().Call(d.ctx, cmd, args, result)
	var refused *lab.CallError
	switch {
	case errors.As(err, &refused):
		c.fail("the guest reports: %s", refused.Message)
	case err != nil:
		c.fail("%v", err)
	}
	return err == nil
}

// probe loads nouveau and checks what it makes of the GPU.
func (d *demo) probe(g *guest, c *check) {
	var mark proto.MarkResult
	d.ask(c, g, proto.CmdMark, nil, &mark)
	d.ask(c, g, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
	log, err := g.vm.KernelLogAfter(d.ctx, mark.Seq)
	c.want(err == nil, "%v", err)
	var dri proto.DRIResult
	d.ask(c, g, proto.CmdDRI, nil, &dri)
	for _, want := range []string{"card0", "renderD128"} {
		c.want(slices.ContainsFunc(dri.Nodes, func(n proto.DRINode) bool {
			return filepath.Base(n.Path) == want && n.Driver == "nouveau"
		}), "nouveau made no /dev/dri/%s", want)
	}
	movers := nouveau.Movers(log)
	c.want(len(movers) == 1, "nouveau chose %d engines for buffer moves, want 1", len(movers))
	judged := "kernel log not judged"
	if g.known {
		judged = "kernel log clean"
		c.problems = append(c.problems, g.kernel.Problems(log, 1)...)
	}
	c.detail = fmt.Sprintf("/dev/dri/card0, buffers moved by %s, %s", strings.Join(movers, ","), judged)
}

// suite runs one of the guest program's suites of verified copies.
func (d *demo) suite(g *guest, c *check, cmd string) (kinds uint64) {
	var r proto.CopyResult
	d.ask(c, g, cmd, proto.CopyArgs{Seed: 1, Quick: true}, &r)
	for _, k := range r.Cases {
		if k.OK {
			engine, _, _ := strings.Cut(k.Name, " ")
			g.add(engine, 1, k.Bytes)
			kinds++
		}
	}
	c.want(len(r.Cases) > 0 && r.Failed == 0, "%d of %d kinds of copies were wrong", r.Failed, len(r.Cases))
	return kinds
}

// load makes a guest copy and verify until stop is called.
func (d *demo) load(g *guest, c *check) (stop func()) {
	if !d.ask(c, g, proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil) {
		return func() {}
	}
	return func() {
		var r proto.LoadTotals
		d.ask(c, g, proto.CmdLoadStop, nil, &r)
		c.want(r.Copies > 0 && r.Wrong == 0 && r.Error == "", "%d of %s's %d copies were wrong %s", r.Wrong, g.name, r.Copies, r.Error)
		g.add("m2mf", r.Copies, r.Bytes)
	}
}

// beside runs f in one guest while all others copy. It returns how many of their copies
// were verified during that.
func (d *demo) beside(g *guest, c *check, f func()) string {
	if d.passThrough {
		f()
		return ""
	}
	others := func() (n uint64) {
		for _, o := range d.guests {
			if o != g {
				n += o.copies
			}
		}
		return n
	}
	before := others()
	var stops []func()
	for _, o := range d.guests {
		if o != g {
			stops = append(stops, d.load(o, c))
		}
	}
	f()
	for _, stop := range stops {
		stop()
	}
	n := others() - before
	c.want(n > 0, "no other guest copied in the meantime")
	return fmt.Sprintf("; %s right copies by others", digits(n))
}
