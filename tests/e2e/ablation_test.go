package e2e

import (
	"context"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/tests/ablation"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// variant is a card that lacks one behaviour, and how an unmodified nouveau reacts.
// It shows why the card needs that behaviour.
type variant struct {
	name    string
	change  func(*soft.Config)
	outcome ablation.Outcome
	// symptom must match the kernel's log, and must not match that of a whole card.
	// Without one, the log must be as clean as that of a whole card.
	symptom string
	// kernels it holds for.
	kernels []string
	// fatal rows need a fresh guest: it cannot use a card afterwards.
	fatal bool
	// when provokes the symptom, if the probe alone does not.
	when func(b *fixture)
}

// ablations are the register rows of tests/ablation and those of the VBIOS.
func ablations(t *testing.T, k kernel) []variant {
	var all []variant
	for _, a := range ablation.Rows {
		r := variant{name: a.Name, change: func(c *soft.Config) { c.Ablate = a.Apply }, outcome: a.Outcome,
			symptom: a.Symptom, kernels: a.Kernels, fatal: a.Outcome == ablation.Dies}
		if a.When != "" {
			r.when = whens[a.When]
			require.NotNil(t, r.when, "no code for: %s", a.When)
		}
		all = append(all, r)
	}
	all = append(all, romAblations(t)...)
	return slices.DeleteFunc(all, func(a variant) bool { return !slices.Contains(a.kernels, k.Version) })
}

// whens implements the conditions that rows of ablation.Rows name.
var whens = map[string]func(b *fixture){
	"a client allocates an object of class 90b5": func(b *fixture) {
		require.Error(b.t, b.try(proto.CmdCE, proto.CopyArgs{Bytes: 4096}, nil))
	},
}

// romAblations are VBIOS images with one thing changed.
func romAblations(t *testing.T) []variant {
	every := []string{"6.1", "6.12", "7.2"}
	// The image lacks the token of that letter, or has zeroes at some offsets.
	rom := func(name string, outcome ablation.Outcome, symptom, without string, zero ...int) variant {
		image, err := firmware.Build(firmware.Options{Without: without})
		require.NoError(t, err, name)
		for _, at := range zero {
			image[len(image)-1] += image[at] // keeps the checksum right
			image[at] = 0
		}
		return variant{name: "rom: " + name, outcome: outcome, symptom: symptom, kernels: every,
			fatal:  outcome == ablation.Fails, // nouveau leaks objects, and fails over them later
			change: func(c *soft.Config) { c.ROM = image }}
	}
	checksum := rom("wrong checksum", ablation.Works, "", "")
	image, err := firmware.Build(firmware.Options{})
	require.NoError(t, err)
	image[len(image)-1]++
	checksum.change = func(c *soft.Config) { c.ROM = image }
	// 6.1 fails without a DCB, as it does without an init table.
	noDCB := rom("no DCB", ablation.Limps, `DCB table not found`, "", 0x36, 0x37)
	noDCB.kernels = []string{"6.12", "7.2"}
	return []variant{
		checksum,
		rom("no signature", ablation.Fails, `bios: unable to locate usable image|bios ctor failed`, "", 0, 1),
		rom("no token I", ablation.Fails, `BIT table 'I' not found`, "I"),
		rom("no token i", ablation.Fails, `BIT table 'i' not found`, "i"),
		rom("no token C", ablation.Works, "", "C"),
		rom("no token P", ablation.Works, "", "P"),
		rom("no token M", ablation.Limps, `unknown memory`, "M"),
		noDCB,
	}
}

// TestAblations takes the card from the driver, changes one thing, and gives the card
// back, many times on one machine.
func TestAblations(t *testing.T) {
	scale.ReleaseOnly(t)
	for _, k := range kernels {
		t.Run(k.Version, func(t *testing.T) {
			t.Parallel()
			rows := ablations(t, k)
			rows = slices.DeleteFunc(rows, func(a variant) bool { return a.fatal })
			b := start(t, testserver.Config{
				Card:    soft.Config{VRAM: 64 << 20},
				Machine: lab.Config{Kernel: k.Version, CPUs: k.CPUs},
			})
			whole := soft.Config{}
			b.rebuild(func(c *soft.Config) { whole = *c })
			b.step("control", func(b *fixture) {
				b.probe(k)
				b.call(proto.CmdCE, proto.CopyArgs{Bytes: 4096}, nil)
				b.requireNoSymptoms(rows)
			})
			for _, a := range rows {
				b.attempt(a.name, func(b *fixture) { b.ablate(k, whole, a) })
			}
			b.step("control again", func(b *fixture) {
				b.rebuild(func(c *soft.Config) { *c = whole })
				mark := b.mark()
				b.bind()
				b.requireClean(k, mark, 1)
				b.fewCopies()
			})
		})
	}
}

// rebuild changes the card while no driver uses it.
func (b *fixture) rebuild(change func(*soft.Config)) {
	b.t.Helper()
	if b.function().Driver != "" {
		b.call(proto.CmdBind, proto.BindArgs{Action: "unbind"}, nil)
	}
	require.NoError(b.t, b.Card.Rebuild(change))
	require.NoError(b.t, b.gpu.Reset()) // the windows too
}

func (b *fixture) bind() {
	b.t.Helper()
	b.call(proto.CmdBind, proto.BindArgs{Action: "bind"}, nil)
}

// ablate gives the driver the changed card and checks the outcome.
func (b *fixture) ablate(k kernel, whole soft.Config, a variant) {
	change := func(c *soft.Config) { *c = whole; a.change(c) }
	var mark uint64
	if a.outcome == ablation.Fails {
		// Removing the module removes the objects of a failed probe.
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
	if a.symptom == "" {
		b.requireMover(k, b.requireClean(k, mark, 1), 1)
	} else {
		require.True(b.t, shows(a.symptom, log), "no line matches %q:\n%s", a.symptom, texts(lab.Warnings(log, "nouveau")))
	}
	if a.outcome == ablation.Works {
		b.fewCopies()
	}
}

// shows reports whether a line of the log matches a symptom.
func shows(symptom string, log []lab.LogLine) bool {
	re := regexp.MustCompile(symptom)
	return symptom != "" && slices.ContainsFunc(log, func(l lab.LogLine) bool { return re.MatchString(l.Text) })
}

// requireNoSymptoms fails if the guest's log shows a symptom of any row.
func (b *fixture) requireNoSymptoms(rows []variant) {
	b.t.Helper()
	log := b.logAfter(0)
	require.NotEmpty(b.t, log)
	for _, a := range rows {
		require.False(b.t, shows(a.symptom, log), "%s: a whole card shows %q", a.name, a.symptom)
	}
}

// fewCopies checks that a GPU works.
func (b *fixture) fewCopies() {
	b.t.Helper()
	var r proto.CopyResult
	w := b.during(func() { b.call(proto.CmdM2MF, proto.CopyArgs{Bytes: 16 << 10}, &r) })
	w.requireMoved(b.t, classM2MF, r.Bytes)
}

// TestFatalAblations leaves out what no guest survives: the driver's thread dies, or
// waits for ever, or its probe leaves memory corrupted. Each row restarts the guest.
func TestFatalAblations(t *testing.T) {
	scale.ReleaseOnly(t)
	k := kernelOf("6.12")
	t.Parallel()
	rows := slices.DeleteFunc(ablations(t, k), func(a variant) bool { return !a.fatal })
	require.NotEmpty(t, rows)
	b := start(t, testserver.Config{
		Card:    soft.Config{VRAM: 64 << 20},
		Machine: lab.Config{Kernel: k.Version, Reboot: true},
	})
	whole := soft.Config{}
	b.rebuild(func(c *soft.Config) { whole = *c })
	for _, a := range rows {
		b.attempt(a.name, func(b *fixture) {
			require.NoError(b.t, b.Card.Rebuild(func(c *soft.Config) { *c = whole; a.change(c) }))
			b.requireFatal(a)
		})
		require.NoError(t, b.VM.Reset(b.ctx))
	}
	b.step("control", func(b *fixture) {
		require.NoError(b.t, b.Card.Rebuild(func(c *soft.Config) { *c = whole }))
		b.probe(k)
		b.requireNoSymptoms(rows)
	})
}

// requireFatal loads the driver and waits on the console for the symptom. A driver
// that dies does not return; one that fails creates no node.
func (b *fixture) requireFatal(a variant) {
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
		found = symptom.MatchString(line.Text)
		from = next
	}
	if a.outcome == ablation.Fails {
		require.NoError(b.t, <-loaded, "the module stays")
		require.Empty(b.t, b.nodes())
		return
	}
	cancel()
	require.Error(b.t, <-loaded)
}
