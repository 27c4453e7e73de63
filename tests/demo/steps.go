package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// What the temperature sensor is set to, one after the other.
const firstCelsius, secondCelsius = 45, 61

// Sizes of the steps, small enough for a machine without KVM.
const (
	fenceCount = 100
	moveBytes  = 1 << 20
	moveCount  = 8
)

// steps are the checks in order, from the probe to the poweroff.
var steps = []struct {
	name string
	do   func(d *demo, c *check)
}{
	{"classes", (*demo).classes},
	{"M2MF", (*demo).m2mf},
	{"copy engines", (*demo).ce},
	{"semaphores", (*demo).semaphores},
	{"fences", (*demo).fences},
	{"moved buffers", (*demo).moves},
	{"temperature", (*demo).temperature},
	{"clean log", (*demo).cleanLog},
	{"GPU fault", (*demo).fault},
	{"interrupts", (*demo).interrupts},
}

// all makes the checks. It is false if the driver did not come up or the guest
// has gone, so that there is nobody left to power off.
func (d *demo) all() bool {
	if !d.check("probe", d.probe) {
		for _, s := range steps {
			d.res.Checks = append(d.res.Checks, check{Name: s.name, NotRun: true})
		}
		return false
	}
	for _, s := range steps {
		d.check(s.name, func(c *check) { s.do(d, c) })
	}
	return d.guest.Call(d.ctx, proto.CmdPing, nil, nil) == nil
}

// probe loads nouveau and wants what a whole card shows of itself.
func (d *demo) probe(c *check) {
	var m proto.MarkResult
	d.call(c, proto.CmdMark, nil, &m)
	var loaded proto.ModprobeResult
	at := time.Now()
	d.call(c, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &loaded)
	d.probeWall = time.Since(at)
	var took time.Duration
	if n := len(loaded.Loaded); n > 0 {
		took = time.Duration(loaded.Loaded[n-1].InitNS)
	}
	d.res.Phases = append(d.res.Phases, phase{Name: "nouveau probes the card", Wall: d.probeWall, Guest: took})

	log := d.log(c, m.Seq)
	for _, l := range log {
		if text, ok := aboutCard(l); ok {
			d.res.Nouveau = append(d.res.Nouveau, fmt.Sprintf("[%9.6f] %s", l.Time.Seconds(), text))
		}
	}
	var dri proto.DRIResult
	d.call(c, proto.CmdDRI, nil, &dri)
	for _, want := range []string{"card0", "renderD128"} {
		c.want(slices.ContainsFunc(dri.Nodes, func(n proto.DRINode) bool {
			return filepath.Base(n.Path) == want && n.Driver == "nouveau"
		}), "there is no /dev/dri/%s of nouveau's", want)
	}
	var pci proto.PCIResult
	d.call(c, proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &pci)
	c.want(len(pci.Functions) == 1, "%d NVIDIA functions on the bus, want 1", len(pci.Functions))
	for _, f := range pci.Functions {
		c.want(f.Driver == "nouveau", "%s is driven by %q", f.Address, f.Driver)
		d.res.IRQ.Mode = strings.ToUpper(f.IRQMode)
	}
	d.mover(c, log)
	d.judgeLog(c, log, 1)
	c.Detail = fmt.Sprintf("/dev/dri/card0 and renderD128, %s, buffers moved by %s", d.res.IRQ.Mode, d.kernel.moverName)
}

// mover wants the kernel to have chosen the engine that it chooses on a Fermi. Of a
// kernel without a row it takes the log's word.
func (d *demo) mover(c *check, log []lab.LogLine) {
	for _, l := range log {
		_, rest, ok := strings.Cut(l.Text, "MM: using ")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		if d.known {
			c.want(name == d.kernel.moverName, "nouveau moves buffers with %s, want %s", name, d.kernel.moverName)
		}
		d.kernel.moverName = name
		return
	}
	c.fail("nouveau does not say what it moves buffers with")
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

// judgeLog wants no line of nouveau's of level warning or worse but the kernel's
// known ones, those so often.
func (d *demo) judgeLog(c *check, log []lab.LogLine, times int) {
	if !d.known {
		return
	}
	seen := map[string]int{}
	for _, l := range lab.Warnings(log, "nouveau") {
		i := slices.IndexFunc(d.kernel.known, func(k string) bool { return strings.Contains(l.Text, k) })
		if i < 0 {
			c.fail("the kernel's log has %s", l)
			continue
		}
		seen[d.kernel.known[i]]++
	}
	for _, k := range d.kernel.known {
		c.want(seen[k] == times, "the kernel's log has %q %d times, want %d", k, seen[k], times)
	}
}

// classes makes an object of every class, and asks what nouveau found.
func (d *demo) classes(c *check) {
	var o proto.ObjectsResult
	d.call(c, proto.CmdObjects, nil, &o)
	c.want(len(o.Objects) > 0, "no object was made")
	var names []string
	for _, k := range o.Objects {
		c.want(k.Bound, "class %04x: %s", k.Class, k.Error)
		names = append(names, fmt.Sprintf("%04x", k.Class))
	}
	var i proto.InfoResult
	d.call(c, proto.CmdInfo, nil, &i)
	c.want(i.Chipset == 0xc0, "the chipset is %#x, want 0xc0", i.Chipset)
	c.want(i.VRAMBytes > d.res.VRAM-d.res.VRAM/8 && i.VRAMBytes <= d.res.VRAM, "clients may use %d bytes of VRAM, want nearly %d", i.VRAMBytes, d.res.VRAM)
	c.Detail = fmt.Sprintf("%s; %d GPCs, %d TPCs, %d ROPs", strings.Join(names, " "), i.GPCs, i.TPCs, i.ROPs)
}

func (d *demo) m2mf(c *check) { d.suite(c, proto.CmdM2MF, "M2MF") }

func (d *demo) ce(c *check) { d.suite(c, proto.CmdCE, "copy engines") }

// suite has the guest copy in many ways, and wants the engines that it names to
// have moved at least what was found right.
func (d *demo) suite(c *check, cmd, name string) {
	var r proto.CopyResult
	w := d.during(c, cmd, proto.CopyArgs{Seed: 1}, &r)
	verified := map[string]uint64{}
	for _, k := range r.Cases {
		engine, _, _ := strings.Cut(k.Name, " ")
		if k.OK {
			verified[engine] += k.Bytes
		}
	}
	for _, m := range movers {
		c.want(w.moved[m.class] >= verified[m.engine], "the guest verified %d bytes by %s, but the card's %04x moved %d",
			verified[m.engine], m.engine, m.class, w.moved[m.class])
	}
	c.want(len(r.Cases) > 0 && r.Failed == 0, "%d of %d cases came out wrong", r.Failed, len(r.Cases))
	d.copied(name, verified["m2mf"]+verified["ce0"]+verified["ce1"], w)
	c.Detail = fmt.Sprintf("%d kinds of copies, VRAM and GART, linear and tiled: all verified", len(r.Cases))
	if cmd == proto.CmdCE {
		c.Detail = fmt.Sprintf("%d kinds by both engines, with component swizzles: all verified", len(r.Cases))
	}
}

// copied adds a row to the table of bytes.
func (d *demo) copied(name string, verified uint64, w counters) {
	row := copies{Name: name, Verified: verified, Moved: map[string]uint64{}}
	for _, m := range movers {
		row.Moved[fmt.Sprintf("%04x", m.class)] = w.moved[m.class]
		row.Launches += w.launches[m.class]
	}
	d.res.Copies = append(d.res.Copies, row)
}

func (d *demo) semaphores(c *check) {
	var r proto.SemaphoresResult
	w := d.during(c, proto.CmdSemaphores, proto.SemaphoresArgs{Seed: 2}, &r)
	held := 0
	for _, k := range r.Checks {
		if k.Skipped == "" {
			c.want(k.OK, "%s: %s", k.Name, k.Error)
			held++
		}
	}
	c.want(held > 0, "no semaphore was looked at")
	c.want(w.acquireWaits > 0, "by the card's count no acquire had to wait")
	d.res.Fences.Semaphores = held
	c.Detail = fmt.Sprintf("%d checks of release, acquire, reports, interrupts", held)
	if n := len(r.Checks) - held; n > 0 {
		c.Detail += fmt.Sprintf(" (%d skipped)", n)
	}
}

func (d *demo) fences(c *check) {
	var r proto.FencesResult
	w := d.during(c, proto.CmdFences, proto.FencesArgs{Count: fenceCount}, &r)
	c.want(r.Waits == fenceCount, "%d waits ended, want %d", r.Waits, fenceCount)
	c.want(r.Wrong+r.CrossWrong == 0, "%d values were not there when the wait ended", r.Wrong+r.CrossWrong)
	c.want(r.CrossCopies > 0, "no copies were chained from channel to channel")
	c.want(w.doorbells >= uint64(r.Pushes), "%d submissions, but the card heard %d doorbells", r.Pushes, w.doorbells)
	f := &d.res.Fences
	f.Waits, f.Chained = r.Waits, r.CrossCopies
	f.Median, f.P99 = time.Duration(r.MedianNS), time.Duration(r.P99NS)
	c.Detail = fmt.Sprintf("%d waits, half under %s; %d copies chained across channels", r.Waits, short(f.Median), r.CrossCopies)
}

// moves has the kernel move a buffer to and fro. The guest fills and reads it with
// M2MF: once, and whenever it lies in VRAM.
func (d *demo) moves(c *check) {
	var r proto.BOMovesResult
	w := d.during(c, proto.CmdBOMoves, proto.BOMovesArgs{Bytes: moveBytes, Moves: moveCount, Seed: 3}, &r)
	c.want(r.Wrong == 0 && r.Bytes == moveCount*moveBytes, "%d bytes were right after %d moves, want %d", r.Bytes, len(r.Domains), moveCount*moveBytes)
	const guests = (1 + moveCount/2) * moveBytes
	want := map[uint16]uint64{classM2MF: guests}
	if d.known {
		want[d.kernel.mover] += moveCount * moveBytes
	}
	for class, n := range want {
		c.want(w.moved[class] >= n, "the card's %04x moved %d bytes, want %d", class, w.moved[class], n)
	}
	d.copied("moved buffers", r.Bytes, w)
	c.Detail = fmt.Sprintf("nouveau moved 1 MiB between VRAM and GART %d times, by %s", len(r.Domains), d.kernel.moverName)
}

// temperature changes the card's sensor under the driver.
func (d *demo) temperature(c *check) {
	first := d.celsius(c)
	d.heat(secondCelsius)
	second := d.celsius(c)
	c.want(first == firstCelsius*1000 && second == secondCelsius*1000,
		"hwmon reads %d and then %d millidegrees, want %d000 and %d000", first, second, firstCelsius, secondCelsius)
	c.Detail = fmt.Sprintf("hwmon follows the card from %d to %d degrees", firstCelsius, secondCelsius)
}

func (d *demo) celsius(c *check) int64 {
	var h proto.HwmonResult
	d.call(c, proto.CmdHwmon, nil, &h)
	for _, s := range h.Sensors {
		if s.Device == "nouveau" && s.Name == "temp1" && s.Error == "" {
			return s.Value
		}
	}
	c.fail("nouveau has no temperature: %+v", h.Sensors)
	return 0
}

// cleanLog wants all that work to have left no trace in the kernel's log.
func (d *demo) cleanLog(c *check) {
	log := d.log(c, 0)
	d.judgeLog(c, log, 1)
	n := len(lab.Warnings(log, "nouveau"))
	switch {
	case !d.known:
		c.Detail = fmt.Sprintf("%d warnings; how many this kernel should have is not known", n)
	case n == 0:
		c.Detail = "no warning from nouveau"
	default:
		c.Detail = fmt.Sprintf("no warning but the %d that this kernel has on any such card", n)
	}
}

// fault has one process read where nothing is mapped while another copies.
func (d *demo) fault(c *check) {
	var r proto.OffenceResult
	w := d.during(c, proto.CmdFault, proto.OffenceArgs{Seed: 5}, &r)
	c.want(w.mmuFaults > 0, "the card reported no MMU fault")
	c.want(r.Killed == (r.Expected == "killed"), "the channel should be %s; killed: %v", r.Expected, r.Killed)
	c.want(r.FreshWorks, "a new channel does not work afterwards")
	b := r.Background
	c.want(b.Copies > 0 && b.Wrong == 0 && b.Error == "", "of the other process' %d copies %d came out wrong %s", b.Copies, b.Wrong, b.Error)
	c.want(w.moved[classM2MF] >= b.Bytes, "the other process verified %d bytes, but the card's 9039 moved %d", b.Bytes, w.moved[classM2MF])
	d.copied("beside the fault", b.Bytes, w)
	c.Detail = fmt.Sprintf("channel %d killed; %d copies of another process all went right", r.Channel, b.Copies)
}

// interrupts wants the guest to have taken some, and no more than were raised.
func (d *demo) interrupts(c *check) {
	var r proto.InterruptsResult
	d.call(c, proto.CmdInterrupts, nil, &r)
	raised := d.count().interrupts
	c.want(r.Count > 0, "the guest took no interrupt")
	c.want(raised >= r.Count, "the guest took %d, the card raised %d", r.Count, raised)
	d.res.IRQ.Taken = r.Count
	c.Detail = fmt.Sprintf("the card raised %s, the guest's kernel took %s", digits(raised), digits(r.Count))
}
