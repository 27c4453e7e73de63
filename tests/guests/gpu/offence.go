package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

const (
	// unmappedVA is far above the addresses that nouveau hands out, and inside the 40 bits of
	// an address.
	unmappedVA = 0x10_0000_0000
	// badHeader is a command word with operation 6, which does not exist.
	badHeader = 6<<29 | 1<<16 | uint32(subchanM2MF)<<13 | 0x40
)

// offence is one way to break a rule, and what nouveau does about it.
type offence struct {
	name    string
	objects []push.Object
	// fault: all kernels kill the channel for an MMU fault. With gsp, firmware tells them.
	fault, gsp bool
	// disables: kernels from 6.2 on kill the channel, by the PBDMA's interrupts of mask c67fe000
	// (gf100_runq_intr). 6.1 logs them and skips the method.
	disables bool
	says     string // a fragment of the kernel's line, unless it is a fault
	// emit has a surface without memory, and one whose content must not change.
	emit func(b *push.Buffer, bad, page push.Surface)
}

var (
	useM2MF = []push.Object{push.M2MF.Object()}
	useCE   = []push.Object{push.CE0.Object()}
	useCopy = []push.Object{push.HopperCopy.Object()}
)

// hopperOffences are those of a GH100.
var hopperOffences = []offence{
	{name: "ce-read", fault: true, gsp: true, objects: useCopy, emit: func(b *push.Buffer, bad, page push.Surface) { b.CopyLines(push.HopperCopy, page, bad, 256, 1) }},
	{name: "ce-write", fault: true, gsp: true, objects: useCopy, emit: func(b *push.Buffer, bad, page push.Surface) { b.CopyLines(push.HopperCopy, bad, page, 256, 1) }},
	{name: "semaphore", fault: true, gsp: true, emit: func(b *push.Buffer, bad, _ push.Surface) { b.HopperRelease(bad.VA, 1) }},
}

// offences are those of a GF100.
var offences = []offence{
	{name: "m2mf-read", fault: true, objects: useM2MF, emit: func(b *push.Buffer, bad, page push.Surface) { b.CopyLines(push.M2MF, page, bad, 256, 1) }},
	{name: "m2mf-write", fault: true, objects: useM2MF, emit: func(b *push.Buffer, bad, page push.Surface) { b.CopyLines(push.M2MF, bad, page, 256, 1) }},
	{name: "ce-read", fault: true, objects: useCE, emit: func(b *push.Buffer, bad, page push.Surface) { b.CopyLines(push.CE0, page, bad, 256, 1) }},
	{name: "ce-write", fault: true, objects: useCE, emit: func(b *push.Buffer, bad, page push.Surface) { b.CopyLines(push.CE0, bad, page, 256, 1) }},
	{name: "semaphore", fault: true, emit: func(b *push.Buffer, bad, _ push.Surface) {
		b.Semaphore(bad.VA, 1, push.SemRelease|push.SemOneWord)
	}},
	{name: "host-method", disables: true, says: "ILLEGAL_MTHD", objects: useM2MF, emit: func(b *push.Buffer, _, _ push.Surface) {
		b.Inc(subchanM2MF, push.HostNoSuch, 0x12345678)
	}},
	{name: "bad-header", disables: true, says: "PBDMA", emit: func(b *push.Buffer, _, _ push.Surface) { b.Raw(badHeader, 0) }},
	{name: "garbage", disables: true, says: "PBDMA", emit: func(b *push.Buffer, _, _ push.Surface) {
		r := random(0)
		for range 64 {
			b.Raw(uint32(r.next())>>3 | 6<<29)
		}
	}},
	{name: "empty-subchannel", says: "EMPTY_SUBC", emit: func(b *push.Buffer, _, _ push.Surface) { b.Inc(subchanEmpty, push.GRNop, 0) }},
	{name: "engine-method", says: "ILLEGAL_MTHD", objects: useM2MF, emit: func(b *push.Buffer, _, _ push.Surface) {
		b.Inc(subchanM2MF, push.GRNoSuch, 0x12345678)
	}},
	{name: "engine-class", says: "ILLEGAL_CLASS", objects: useM2MF, emit: func(b *push.Buffer, _, _ push.Surface) {
		b.SetObject(push.Object{Class: push.ClassNoSuch, Unit: push.UnitGR, Subchan: subchanM2MF})
	}},
}

// judgement is what a kernel does about an offence: whether it kills the channel, and fragments of
// the lines that it logs.
func (o *offence) judgement(release string) (killed bool, says []string) {
	old := strings.HasPrefix(release, "6.1.")
	switch {
	case o.gsp:
		return true, []string{"rc engn", "errored - disabling channel", "killed!"}
	case o.fault && old:
		return true, []string{" fault at ", "engine fault on channel ", "killed!"}
	case o.fault:
		return true, []string{"fault ", "rc scheduled", "errored - disabling channel", "killed!"}
	case o.disables && !old:
		return true, []string{o.says, "killed!"}
	}
	return false, []string{o.says}
}

// Fault breaks a rule on a new channel while another client copies. The kernel must do what it does for
// this offence, the other copy on, and a new client work.
func (e *Env) Fault(a proto.OffenceArgs) (res proto.OffenceResult, err error) {
	dev, err := e.Open()
	if err != nil {
		return res, err
	}
	chip, err := chipOf(dev)
	if err := errors.Join(err, dev.Close()); err != nil {
		return res, err
	}
	offences := chip.offences
	if a.What == "" {
		a.What = offences[0].name
	}
	i := slices.IndexFunc(offences, func(o offence) bool { return o.name == a.What })
	if i < 0 {
		var names []string
		for _, o := range offences {
			names = append(names, o.name)
		}
		return res, fmt.Errorf("offence %q: want one of %s", a.What, strings.Join(names, ", "))
	}
	load, err := e.StartLoad(proto.LoadArgs{Seed: a.Seed + 1<<40, Bytes: 64 << 10})
	if err != nil {
		return res, fmt.Errorf("background: %w", err)
	}
	if err = e.commit(&offences[i], a, &res); err != nil {
		err = fmt.Errorf("%s: %w", a.What, err)
	}
	var loadErr error
	res.Background, loadErr = load.anotherRound()
	err = errors.Join(err, loadErr)
	if fresh := e.verified(); fresh != nil {
		return res, errors.Join(err, fmt.Errorf("a new client does not work: %w", fresh))
	}
	res.FreshWorks = true
	return res, err
}

// commit commits the offence on a new channel, and watches the channel.
func (e *Env) commit(o *offence, a proto.OffenceArgs, res *proto.OffenceResult) (err error) {
	mark, err := e.Mark(proto.MarkArgs{})
	if err != nil {
		return err
	}
	s, err := e.stream()
	if err != nil {
		return err
	}
	defer closeInto(s, &err)
	page, err := s.dev.NewBuffer(4096, drm.DomainGART)
	if err != nil {
		return err
	}
	defer closeInto(page, &err)
	m, err := page.Bytes()
	if err != nil {
		return err
	}
	if err := s.use(o.objects...); err != nil {
		return err
	}
	if err := alive(s, page, 0x600d); err != nil {
		return fmt.Errorf("before the offence: %w", err)
	}
	poison := make([]byte, len(m))
	fill(poison, a.Seed+9)
	copy(m, poison)

	expected, says := o.judgement(e.Release())
	res.Channel, res.Expected = s.ch.ID(), expected
	var b push.Buffer
	o.emit(&b, push.Surface{VA: unmappedVA, Pitch: 256}, push.Surface{VA: page.VA(), Pitch: 256})
	start := time.Now()
	// The kernel may kill the channel before it has put its fence behind the commands;
	// the submission itself then says so.
	if err := s.Submit(&b, ref(page, drm.DomainGART, true)); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	if err := e.watch(s.ch, start.Add(patience), mark.Seq, res); err != nil {
		return err
	}
	switch {
	case expected != res.Killed:
		return fmt.Errorf("channel %d was killed: %v; kernel %s: %v", res.Channel, res.Killed, e.Release(), expected)
	case !bytes.Equal(m, poison):
		return errors.New("memory was written that must not be")
	}
	for _, fragment := range says {
		if !logged(res.Log, fragment) {
			return fmt.Errorf("the kernel did not log %q", fragment)
		}
	}
	if !res.Killed {
		return alive(s, page, 0xa11fe)
	}
	return nil
}

// watch polls until the channel is dead or the time is up. A channel that is expected to
// live gets some time after the kernel logged the offence, because the reporter decides
// whether the kernel kills it.
func (e *Env) watch(ch Channel, end time.Time, mark uint64, res *proto.OffenceResult) error {
	const spared = 500 * time.Millisecond
	for time.Now().Before(end) && !res.Killed {
		err := ch.Alive()
		if res.Killed = errors.Is(err, unix.ENODEV); err != nil && !res.Killed {
			return fmt.Errorf("submissions fail with %w, want ENODEV", err)
		}
		if res.ReportedBy == "" {
			if err := e.readLog(mark, res); err != nil {
				return err
			}
			if res.ReportedBy != "" && !res.Expected {
				end = time.Now().Add(spared)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return e.readLog(mark, res)
}

// readLog collects warnings and worse, and derives from them which interrupt reported the offence.
func (e *Env) readLog(mark uint64, res *proto.OffenceResult) error {
	const warning = 4
	log, err := e.Kmsg(proto.KmsgArgs{AfterSeq: &mark, Limit: 1 << 20})
	if err != nil {
		return err
	}
	res.Log = slices.DeleteFunc(log.Records, func(r proto.KmsgRecord) bool { return r.Level > warning })
	for _, r := range [][2]string{{"fault", "mmu"}, {" gr: ", "pgraph"}, {"PBDMA", "pbdma"}, {"rc engn", "gsp"}} {
		if logged(res.Log, r[0]) {
			res.ReportedBy = r[1]
		}
	}
	return nil
}

func logged(records []proto.KmsgRecord, fragment string) bool {
	return slices.ContainsFunc(records, func(r proto.KmsgRecord) bool { return strings.Contains(r.Text, fragment) })
}
