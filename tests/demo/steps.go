package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
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
	if !d.check("probe", d.probeCard) {
		for _, s := range steps {
			d.notRun(s.name)
		}
		return false
	}
	for _, s := range steps {
		d.check(s.name, func(c *check) { s.do(d, c) })
	}
	return d.guest.Call(d.ctx, proto.CmdPing, nil, nil) == nil
}

func (d *demo) probeCard(c *check) {
	r := d.probe(c, d.guest, d.kernel)
	d.probeWall = r.wall
	d.kernel.MoverName = r.mover
	d.res.Phases = append(d.res.Phases, phase{Name: "nouveau probes the card", Wall: r.wall, Guest: r.inGuest})
	d.res.Nouveau, d.res.IRQ.Mode = r.said, r.irq
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
	before := d.count()
	v := d.copySuite(c, d.guest, cmd, proto.CopyArgs{Seed: 1})
	w := d.count().since(before)
	for _, m := range movers {
		c.want(w.moved[m.class] >= v.bytes[m.engine], "the guest verified %d bytes by %s, but the card's %04x moved %d",
			v.bytes[m.engine], m.engine, m.class, w.moved[m.class])
	}
	d.copied(name, v.bytes["m2mf"]+v.bytes["ce0"]+v.bytes["ce1"], w)
	c.Detail = fmt.Sprintf("%d kinds of copies, VRAM and GART, linear and tiled: all verified", v.copies)
	if cmd == proto.CmdCE {
		c.Detail = fmt.Sprintf("%d kinds by both engines, with component swizzles: all verified", v.copies)
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
	want := map[uint16]uint64{nouveau.ClassM2MF: guests}
	if d.kernel.known {
		want[d.kernel.Mover] += moveCount * moveBytes
	}
	for class, n := range want {
		c.want(w.moved[class] >= n, "the card's %04x moved %d bytes, want %d", class, w.moved[class], n)
	}
	d.copied("moved buffers", r.Bytes, w)
	c.Detail = fmt.Sprintf("nouveau moved 1 MiB between VRAM and GART %d times, by %s", len(r.Domains), d.kernel.MoverName)
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
	log := d.kernelLog(c, d.guest, 0)
	d.kernel.judgeLog(c, log)
	n := len(lab.Warnings(log, "nouveau"))
	switch {
	case !d.kernel.known:
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
	c.want(w.moved[nouveau.ClassM2MF] >= b.Bytes, "the other process verified %d bytes, but the card's 9039 moved %d", b.Bytes, w.moved[nouveau.ClassM2MF])
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
