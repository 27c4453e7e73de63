package e2e

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// ablation is a card with one behaviour left out, and what an unmodified nouveau
// makes of it. It answers for each behaviour of the card why it is there.
type ablation struct {
	name    string
	change  func(*soft.Config)
	outcome gf100.Outcome
	// symptom is what the kernel's log must match, and the log of a whole card
	// must not. An empty one means a log as clean as that.
	symptom string
	// kernels it holds for.
	kernels []string
	// fatal rows need a guest of their own: it cannot use a card afterwards.
	fatal bool
	// when brings the symptom about, if the probe alone does not.
	when func(b *bed)
}

// ablations are the register rows of package gf100 and those of the VBIOS.
func ablations(t *testing.T, k kernel) []ablation {
	var all []ablation
	for _, a := range gf100.Ablations {
		r := ablation{name: a.Name, change: func(c *soft.Config) { c.Ablate = a.Apply }, outcome: a.Outcome,
			symptom: a.Symptom, kernels: a.Kernels, fatal: a.Outcome == gf100.Dies}
		if a.When != "" {
			r.when = whens[a.When]
			require.NotNil(t, r.when, "no code for: %s", a.When)
		}
		all = append(all, r)
	}
	all = append(all, romAblations(t)...)
	return slices.DeleteFunc(all, func(a ablation) bool { return !slices.Contains(a.kernels, k.Version) })
}

// whens does what rows of gf100.Ablations ask for in words.
var whens = map[string]func(b *bed){
	"a client allocates an object of class 90b5": func(b *bed) {
		require.Error(b.t, b.try(proto.CmdObjects, nil, nil))
	},
}

// romAblations are VBIOS images with one thing changed.
func romAblations(t *testing.T) []ablation {
	every := []string{"6.1", "6.12", "7.2"}
	rom := func(name string, outcome gf100.Outcome, symptom string, edit func(*firmware.Description)) ablation {
		d := firmware.GF100(firmware.Options{})
		edit(&d)
		image, err := firmware.Build(d)
		require.NoError(t, err, name)
		return ablation{name: "rom: " + name, outcome: outcome, symptom: symptom, kernels: every,
			fatal:  outcome == gf100.Fails, // nouveau leaks what it has made by then, and trips over it later
			change: func(c *soft.Config) { c.ROM = image }}
	}
	without := func(name string, outcome gf100.Outcome, symptom string, token byte) ablation {
		return rom(name, outcome, symptom, func(d *firmware.Description) {
			require.True(t, d.RemoveToken(token), "token %c", token)
		})
	}
	checksum := rom("wrong checksum", gf100.Works, "", func(*firmware.Description) {})
	image, err := firmware.Build(firmware.GF100(firmware.Options{}))
	require.NoError(t, err)
	image[len(image)-1]++
	checksum.change = func(c *soft.Config) { c.ROM = image }
	// 6.1 does without a DCB no better than without an init table.
	noDCB := rom("no DCB", gf100.Limps, `DCB table not found`, func(d *firmware.Description) { d.DCB = nil })
	noDCB.kernels = []string{"6.12", "7.2"}
	return []ablation{
		checksum,
		rom("no signature", gf100.Fails, `bios: unable to locate usable image|bios ctor failed`, func(d *firmware.Description) { d.Signature = 0 }),
		without("no token I", gf100.Fails, `BIT table 'I' not found`, 'I'),
		without("no token i", gf100.Fails, `BIT table 'i' not found`, 'i'),
		without("no token C", gf100.Works, "", 'C'),
		without("no token P", gf100.Works, "", 'P'),
		without("no token M", gf100.Limps, `unknown memory`, 'M'),
		noDCB,
	}
}

// TestAblations takes the card from the driver, changes one thing, and gives it
// back, again and again on one machine.
func TestAblations(t *testing.T) {
	for _, k := range kernels {
		t.Run(k.Version, func(t *testing.T) {
			t.Parallel()
			rows := ablations(t, k)
			rows = slices.DeleteFunc(rows, func(a ablation) bool { return a.fatal })
			b := start(t, stand.Config{
				Card:    soft.Config{VRAM: 64 << 20},
				Machine: lab.Config{Kernel: k.Version, CPUs: k.CPUs},
			})
			whole := soft.Config{}
			b.rebuild(func(c *soft.Config) { whole = *c })
			b.step("control", func(b *bed) {
				b.probe(k)
				b.call(proto.CmdObjects, nil, nil)
				b.requireNoSymptoms(rows)
			})
			for _, a := range rows {
				b.attempt(a.name, func(b *bed) { b.ablate(k, whole, a) })
			}
			b.step("control again", func(b *bed) {
				b.rebuild(func(c *soft.Config) { *c = whole })
				mark := b.mark()
				b.bind()
				b.requireClean(k, mark, 1)
				b.fewCopies()
			})
		})
	}
}

// ablate gives the driver the changed card and judges what it makes of it.
func (b *bed) ablate(k kernel, whole soft.Config, a ablation) {
	change := func(c *soft.Config) { *c = whole; a.change(c) }
	var mark uint64
	if a.outcome == gf100.Fails {
		// What such a probe leaves behind goes with the module.
		b.rmmod()
		defer func() {
			b.rmmod()
			b.rebuild(func(c *soft.Config) { *c = whole })
			b.modprobe()
		}()
		b.rebuild(change)
		mark = b.mark()
		b.modprobe()
		require.Empty(b.t, b.nodes())
		require.Empty(b.t, b.function().Driver)
	} else {
		b.rebuild(change)
		mark = b.mark()
		b.bind()
		require.ElementsMatch(b.t, []string{"card0", "renderD128"}, b.nodes())
	}
	if a.when != nil {
		a.when(b)
	}
	log := b.logAfter(mark)
	b.logSymptoms(a, log)
	if a.symptom == "" {
		b.requireMover(k, b.requireClean(k, mark, 1), 1)
	} else {
		require.True(b.t, shows(a.symptom, log), "no line matches %q", a.symptom)
	}
	if a.outcome == gf100.Works {
		b.fewCopies()
	}
}

// shows tells whether a line of the log matches a symptom.
func shows(symptom string, log []lab.LogLine) bool {
	re := regexp.MustCompile(symptom)
	return symptom != "" && slices.ContainsFunc(log, func(l lab.LogLine) bool { return re.MatchString(l.Text) })
}

// requireNoSymptoms wants nothing of what the rows lead to in the guest's log.
func (b *bed) requireNoSymptoms(rows []ablation) {
	b.t.Helper()
	log := b.logAfter(0)
	require.NotEmpty(b.t, log)
	for _, a := range rows {
		require.False(b.t, shows(a.symptom, log), "%s: a whole card shows %q", a.name, a.symptom)
	}
}

// logSymptoms shows the lines that match, or if none does, all that nouveau
// complained of.
func (b *bed) logSymptoms(a ablation, log []lab.LogLine) {
	b.t.Helper()
	none := true
	for _, l := range log {
		if shows(a.symptom, []lab.LogLine{l}) {
			b.t.Log(l)
			none = false
		}
	}
	if none {
		b.t.Log(texts(lab.Warnings(log, "nouveau")))
	}
}

// fewCopies shows that a GPU works.
func (b *bed) fewCopies() {
	b.t.Helper()
	var cases []proto.CopyCase
	for _, r := range [][2]string{{"gart", "vram"}, {"vram", "vram"}, {"vram", "gart"}} {
		cases = append(cases, proto.CopyCase{Engine: "m2mf", From: r[0], To: r[1], LineBytes: 4096, Lines: 4})
	}
	var r proto.CopyResult
	w := b.during(func() { b.call(proto.CmdCopy, proto.CopyArgs{Cases: cases}, &r) })
	require.Equal(b.t, len(cases), len(r.Cases))
	w.requireMoved(b.t, classM2MF, r.Bytes)
}

// TestFatalAblations leaves out what the guest does not get over: the driver's
// thread ends in an oops, or waits for ever, or its probe ends with a mess. The
// guest starts anew for each.
func TestFatalAblations(t *testing.T) {
	k := kernelOf("6.12")
	t.Parallel()
	rows := slices.DeleteFunc(ablations(t, k), func(a ablation) bool { return !a.fatal })
	require.NotEmpty(t, rows)
	b := start(t, stand.Config{
		Card:    soft.Config{VRAM: 64 << 20},
		Machine: lab.Config{Kernel: k.Version, Reboot: true},
	})
	whole := soft.Config{}
	b.rebuild(func(c *soft.Config) { whole = *c })
	for _, a := range rows {
		b.attempt(a.name, func(b *bed) {
			require.NoError(b.t, b.Card.Rebuild(func(c *soft.Config) { *c = whole; a.change(c) }))
			b.requireFatal(a)
		})
		require.NoError(t, b.VM.Reset(b.ctx))
	}
	b.step("control", func(b *bed) {
		require.NoError(b.t, b.Card.Rebuild(func(c *soft.Config) { *c = whole }))
		b.probe(k)
		b.requireNoSymptoms(rows)
	})
}

// requireFatal loads the driver and waits on the console for the symptom. A
// driver that dies does not come back; one that fails has made no node.
func (b *bed) requireFatal(a ablation) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, callPatience)
	defer cancel()
	from := len(b.VM.Console())
	loaded := make(chan error, 1)
	go func() { loaded <- b.VM.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil) }()
	symptom := regexp.MustCompile(a.symptom)
	for found := false; !found; {
		line, next, err := b.VM.WaitConsole(ctx, "", from)
		require.NoError(b.t, err)
		if found = symptom.MatchString(line.Text); found {
			b.t.Log(strings.TrimSpace(line.Text))
		}
		from = next
	}
	if a.outcome == gf100.Fails {
		require.NoError(b.t, <-loaded, "the module stays")
		require.Empty(b.t, b.nodes())
		return
	}
	cancel()
	require.Error(b.t, <-loaded)
}
