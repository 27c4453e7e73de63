package gpu

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// unmappedVA is far above the addresses that nouveau hands out, and inside the 40 bits of
// an address.
const unmappedVA = 0x10_0000_0000

// offence is one way to break a rule. emit may use the subchannels of its objects, an
// unmapped VA, and a page that must keep its content.
type offence struct {
	name    string
	kind    drm.Offence
	objects []push.Object
	page    uint64 // its bytes, if not 4096
	emit    func(b *push.Buffer, bad, page uint64, r *random)
}

// badHeader is a command word with operation 6, which does not exist.
const badHeader = 6<<29 | 1<<16 | uint32(subchanM2MF)<<13 | 0x40

var offences = []offence{
	{"m2mf-read", drm.OffenceMMUFault, []push.Object{push.M2MF.Object()}, 0, func(b *push.Buffer, bad, page uint64, _ *random) {
		b.M2MFCopy(subchanM2MF, push.Surface{VA: bad, Pitch: 256}, push.Surface{VA: page, Pitch: 256}, 256, 1, push.LaunchFlush)
	}},
	{"m2mf-write", drm.OffenceMMUFault, []push.Object{push.M2MF.Object()}, 0, func(b *push.Buffer, bad, page uint64, _ *random) {
		b.M2MFCopy(subchanM2MF, push.Surface{VA: page, Pitch: 256}, push.Surface{VA: bad, Pitch: 256}, 256, 1, push.LaunchFlush)
	}},
	{"ce-read", drm.OffenceMMUFault, []push.Object{push.CE0.Object()}, 0, func(b *push.Buffer, bad, page uint64, _ *random) {
		b.CECopy(push.CE0.Object().Subchan, push.Surface{VA: bad, Pitch: 256}, push.Surface{VA: page, Pitch: 256}, 256, 1, 0, nil)
	}},
	{"ce-write", drm.OffenceMMUFault, []push.Object{push.CE0.Object()}, 0, func(b *push.Buffer, bad, page uint64, _ *random) {
		b.CECopy(push.CE0.Object().Subchan, push.Surface{VA: page, Pitch: 256}, push.Surface{VA: bad, Pitch: 256}, 256, 1, 0, nil)
	}},
	{"semaphore", drm.OffenceSemaphoreFault, nil, 0, func(b *push.Buffer, bad, _ uint64, _ *random) {
		b.Semaphore(bad, 1, push.SemRelease|push.SemOneWord)
	}},
	{"host-method", drm.OffenceHostMethod, []push.Object{push.M2MF.Object()}, 0, func(b *push.Buffer, _, _ uint64, _ *random) {
		b.Inc(subchanM2MF, push.HostNoSuch, 0x12345678)
	}},
	{"engine-method", drm.OffenceEngineMethod, []push.Object{push.M2MF.Object()}, 0, func(b *push.Buffer, _, _ uint64, _ *random) {
		b.Inc(subchanM2MF, push.GRNoSuch, 0x12345678)
	}},
	{"engine-class", drm.OffenceEngineClass, []push.Object{push.M2MF.Object()}, 0, func(b *push.Buffer, _, _ uint64, _ *random) {
		b.SetObject(push.Object{Class: push.ClassNoSuch, Unit: push.UnitGR, Subchan: subchanM2MF})
	}},
	{"empty-subchannel", drm.OffenceEmptySubchan, nil, 0, func(b *push.Buffer, _, _ uint64, _ *random) {
		b.Inc(subchanEmpty, push.GRNop, 0)
	}},
	{"bad-header", drm.OffenceBadHeader, nil, 0, func(b *push.Buffer, _, _ uint64, _ *random) {
		b.Raw(badHeader, 0)
	}},
	{"garbage", drm.OffenceBadHeader, nil, 0, func(b *push.Buffer, _, _ uint64, r *random) {
		for range 64 {
			b.Raw(uint32(r.next())>>3 | 6<<29)
		}
	}},
	// Minutes of copies of a line onto itself, in one entry of the ring. If requests have a
	// limit, its channel ends as after an engine fault.
	{runaway, drm.OffenceMMUFault, []push.Object{push.M2MF.Object()}, 1 << 19, func(b *push.Buffer, _, page uint64, _ *random) {
		line := push.Surface{VA: page}
		for range runawayCopies {
			b.M2MFCopy(subchanM2MF, line, line, 1<<19, push.MaxM2MFLines, push.LaunchFlush)
		}
	}},
}

const (
	runaway       = "runaway"
	runawayCopies = 1200 // of a GiB each; a push buffer holds no more
)

func offenceOf(name string) (offence, error) {
	names := make([]string, len(offences))
	for i, o := range offences {
		if o.name == name {
			return o, nil
		}
		names[i] = o.name
	}
	return offence{}, fmt.Errorf("offence %q: want one of %s", name, strings.Join(names, ", "))
}

// Fault provokes an MMU fault, while other clients copy.
func (e *Env) Fault(a proto.OffenceArgs) (proto.OffenceResult, error) {
	if a.What == "" {
		a.What = "m2mf-read"
	}
	return e.offend(a)
}

// Illegal sends invalid commands, while other clients copy.
func (e *Env) Illegal(a proto.OffenceArgs) (proto.OffenceResult, error) {
	if a.What == "" {
		a.What = "host-method"
	}
	return e.offend(a)
}

func (e *Env) offend(a proto.OffenceArgs) (res proto.OffenceResult, err error) {
	load, err := e.background(a)
	if err != nil {
		return res, err
	}
	res, err = e.offendOnce(a)
	// The others must copy on: wait for one more of their rounds.
	if load != nil {
		var loadErr error
		res.Background, loadErr = settle(load)
		err = errors.Join(err, loadErr)
	}
	if fresh := e.verified(); fresh != nil {
		return res, errors.Join(err, fmt.Errorf("a new client does not work: %w", fresh))
	}
	res.FreshWorks = true
	return res, err
}

func (e *Env) background(a proto.OffenceArgs) (*Load, error) {
	clients := orInt(a.Background, 1)
	if clients < 0 {
		return nil, nil
	}
	l, err := e.StartLoad(proto.LoadArgs{Seed: a.Seed + 1<<40, Clients: clients, Bytes: 64 << 10})
	if err != nil {
		return nil, fmt.Errorf("background: %w", err)
	}
	return l, nil
}

// settle waits for the clients to do another round each, or so, and stops them.
func settle(l *Load) (proto.LoadTotals, error) {
	before := l.Totals().Copies
	deadline := time.Now().Add(patience)
	for l.Totals().Copies < before+3*uint64(l.clients) && l.Totals().Error == "" && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	moved := l.Totals().Copies > before
	t := l.Stop()
	switch {
	case t.Error != "":
		return t, fmt.Errorf("background: %s", t.Error)
	case t.Wrong > 0:
		return t, fmt.Errorf("background: %d copies came out wrong", t.Wrong)
	case !moved:
		return t, fmt.Errorf("background: no copy was finished in %v after the offence", patience)
	}
	return t, nil
}

// offendOnce commits the offence on a new channel and watches the channel.
func (e *Env) offendOnce(a proto.OffenceArgs) (res proto.OffenceResult, err error) {
	o, err := offenceOf(a.What)
	if err != nil {
		return res, err
	}
	kernel := drm.KernelOf(e.Release())
	res.What, res.Kernel, res.Expected = o.name, kernel.Line, expected(kernel, o.kind)
	mark, err := e.LastRecord()
	if err != nil {
		return res, err
	}
	if err := e.commit(o, kernel, mark, a, &res); err != nil {
		return res, err
	}
	if err := e.readLog(mark, kernel, o, &res); err != nil {
		return res, err
	}
	res.LogMissing = e.missing(kernel, o, &res)
	return res, judge(&res)
}

// commit commits the offence. An error means that the set-up failed.
func (e *Env) commit(o offence, k drm.Kernel, mark uint64, a proto.OffenceArgs, res *proto.OffenceResult) (err error) {
	s, err := e.client()
	if err != nil {
		return err
	}
	defer closeInto(s, &err)
	page, err := s.dev.NewBuffer(max(o.page, 4096), drm.DomainGART)
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
	if err := alive(s.Stream, page, 0x600d); err != nil {
		return fmt.Errorf("before the offence: %w", err)
	}
	res.Channel = s.ch.ID()
	poison := make([]byte, len(m))
	fill(poison, a.Seed+9)
	copy(m, poison)
	r := random(a.Seed)
	var b push.Buffer
	o.emit(&b, unmappedVA, page.VA(), &r)
	start := time.Now()
	// The kernel may kill the channel before it has put its fence behind the commands;
	// the submission itself then says so.
	if err := s.Submit(&b, ref(page, drm.DomainGART, true)); err != nil && drm.Errno(err) != enodev {
		return err
	}
	if err := e.watch(s.Stream, o, k, mark, a, start, res); err != nil {
		return err
	}
	wrong, _ := differ(m, poison)
	res.Untouched = wrong == 0
	if !res.Killed {
		res.GoesOn = alive(s.Stream, page, 0xa11fe) == nil
	}
	return nil
}

// watch polls until the channel is dead or the time is up. A channel that is expected to
// live gets some time after the kernel logged the offence, because the reporter decides
// whether the kernel kills it.
func (e *Env) watch(s *Stream, o offence, k drm.Kernel, mark uint64, a proto.OffenceArgs, start time.Time, res *proto.OffenceResult) error {
	end := start.Add(time.Duration(orInt(a.TimeoutMS, 60_000)) * time.Millisecond)
	logged := false
	for time.Now().Before(end) {
		if err := s.ch.Alive(); err != nil {
			res.Killed, res.Errno, res.AfterNS = true, drm.Errno(err), time.Since(start).Nanoseconds()
			return nil
		}
		if !logged {
			if err := e.readLog(mark, k, o, res); err != nil {
				return err
			}
			if logged = res.ReportedBy != ""; logged && res.Expected == "alive" {
				end = time.Now().Add(spared)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// spared is how long a channel must live after its offence to count as not killed.
const spared = 500 * time.Millisecond

// readLog collects warnings and worse, and derives from them who reported the offence.
func (e *Env) readLog(mark uint64, k drm.Kernel, o offence, res *proto.OffenceResult) error {
	records, err := e.LogAfter(mark)
	if err != nil {
		return err
	}
	const warning = 4
	res.Log = nil
	for _, r := range records {
		if r.Level <= warning {
			res.Log = append(res.Log, r)
		}
	}
	res.ReportedBy = reporter(res.Log)
	res.Expected = expected(k, reported(o, res))
	return nil
}

// reported is the offence as the kernel classifies it.
func reported(o offence, res *proto.OffenceResult) drm.Offence {
	if engineOffence[o.kind] && res.ReportedBy == "pbdma" {
		return drm.OffenceHostMethod
	}
	return o.kind
}

// missing lists what this kernel should have logged and did not.
func (e *Env) missing(k drm.Kernel, o offence, res *proto.OffenceResult) (texts []string) {
	kind := reported(o, res)
	fragments := []string{k.Says[kind]}
	switch {
	case kind == drm.OffenceMMUFault || kind == drm.OffenceSemaphoreFault:
		fragments = k.Faults
	case k.KilledBy[kind]:
		fragments = append(fragments, "killed!")
	}
	for _, f := range fragments {
		if !logged(res.Log, f) {
			texts = append(texts, f)
		}
	}
	return texts
}

// engineOffence holds what a GF100 reports by PGRAPH, for which the kernel never kills a
// channel. If a card reports it by the PBDMA as an illegal method, the kernel must act on
// that.
var engineOffence = map[drm.Offence]bool{drm.OffenceEngineMethod: true, drm.OffenceEngineClass: true}

// reporter is the interrupt that reported the offence to the kernel.
func reporter(records []proto.KmsgRecord) string {
	for _, r := range []struct{ fragment, name string }{{"PBDMA", "pbdma"}, {" gr: ", "pgraph"}, {"fault", "mmu"}} {
		if logged(records, r.fragment) {
			return r.name
		}
	}
	return ""
}

func expected(k drm.Kernel, kind drm.Offence) string {
	if k.KilledBy[kind] {
		return "killed"
	}
	return "alive"
}

func logged(records []proto.KmsgRecord, fragment string) bool {
	for _, r := range records {
		if strings.Contains(r.Text, fragment) {
			return true
		}
	}
	return false
}

// enodev is GEM_PUSHBUF's error for a killed channel.
const enodev = 19

func judge(r *proto.OffenceResult) error {
	switch {
	case r.Expected == "killed" && !r.Killed:
		return fmt.Errorf("%s: channel %d is still alive; kernel %s kills it", r.What, r.Channel, r.Kernel)
	case r.Expected == "alive" && r.Killed:
		return fmt.Errorf("%s: channel %d was killed; kernel %s only logs this", r.What, r.Channel, r.Kernel)
	case r.Killed && r.Errno != enodev:
		return fmt.Errorf("%s: submissions to the dead channel fail with errno %d, want %d", r.What, r.Errno, enodev)
	case !r.Killed && !r.GoesOn:
		return fmt.Errorf("%s: channel %d was not killed, but does nothing any more", r.What, r.Channel)
	case !r.Untouched:
		return fmt.Errorf("%s: memory was written that must not be", r.What)
	case len(r.LogMissing) > 0:
		return fmt.Errorf("%s: the kernel did not log %q", r.What, r.LogMissing)
	}
	return nil
}
