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
	"github.com/umbra-gpu/umbra/tests/ablation"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// ablations are the rows of a kernel after which its driver lives on, or after which it dies.
func ablations(k kernel, dies bool) []ablation.Row {
	return slices.DeleteFunc(slices.Clone(ablation.Rows), func(r ablation.Row) bool {
		return !slices.Contains(r.Kernels, k.Version) || (r.Outcome == ablation.Dies) != dies
	})
}

// whens implements the conditions that rows of ablation.Rows name.
var whens = map[string]func(b *fixture){
	"a client allocates an object of class 90b5": func(b *fixture) {
		require.Error(b.t, b.try(proto.CmdCE, proto.CopyArgs{Bytes: 4096}, nil))
	},
}

// TestAblations takes the card from the driver, changes one thing, and gives the card
// back, many times on one machine.
func TestAblations(t *testing.T) {
	scale.ReleaseOnly(t)
	for _, k := range kernels {
		t.Run(k.Version, func(t *testing.T) {
			t.Parallel()
			rows := ablations(k, false)
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
				b.attempt(a.Name, func(b *fixture) { b.ablate(k, whole, a) })
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
func (b *fixture) ablate(k kernel, whole soft.Config, a ablation.Row) {
	change := func(c *soft.Config) { *c = whole; c.Ablate = a.Apply }
	var mark uint64
	if a.Outcome == ablation.Fails {
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
	if a.When != "" {
		require.Contains(b.t, whens, a.When)
		whens[a.When](b)
	}
	log := b.logAfter(mark)
	if a.Symptom == "" {
		b.requireMover(k, b.requireClean(k, mark, 1), 1)
	} else {
		require.True(b.t, shows(a.Symptom, log), "no line matches %q:\n%s", a.Symptom, texts(lab.Warnings(log, "nouveau")))
	}
	if a.Outcome == ablation.Works {
		b.fewCopies()
	}
}

// shows reports whether a line of the log matches a symptom.
func shows(symptom string, log []lab.LogLine) bool {
	re := regexp.MustCompile(symptom)
	return symptom != "" && slices.ContainsFunc(log, func(l lab.LogLine) bool { return re.MatchString(l.Text) })
}

// requireNoSymptoms fails if the guest's log shows a symptom of any row.
func (b *fixture) requireNoSymptoms(rows []ablation.Row) {
	b.t.Helper()
	log := b.logAfter(0)
	require.NotEmpty(b.t, log)
	for _, a := range rows {
		require.False(b.t, shows(a.Symptom, log), "%s: a whole card shows %q", a.Name, a.Symptom)
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
// waits for ever. Each row restarts the guest.
func TestFatalAblations(t *testing.T) {
	scale.ReleaseOnly(t)
	k := kernelOf("6.12")
	t.Parallel()
	rows := ablations(k, true)
	require.NotEmpty(t, rows)
	b := start(t, testserver.Config{
		Card:    soft.Config{VRAM: 64 << 20},
		Machine: lab.Config{Kernel: k.Version, Reboot: true},
	})
	whole := soft.Config{}
	b.rebuild(func(c *soft.Config) { whole = *c })
	for _, a := range rows {
		b.attempt(a.Name, func(b *fixture) {
			require.NoError(b.t, b.Card.Rebuild(func(c *soft.Config) { *c = whole; c.Ablate = a.Apply }))
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
// that dies does not return.
func (b *fixture) requireFatal(a ablation.Row) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, callPatience)
	defer cancel()
	from := len(b.VM.Console())
	loaded := make(chan error, 1)
	go func() { loaded <- b.VM.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil) }()
	symptom := regexp.MustCompile(a.Symptom)
	for found := false; !found; {
		line, next, err := b.VM.WaitConsole(ctx, "", from)
		require.NoError(b.t, err)
		found = symptom.MatchString(line.Text)
		from = next
	}
	cancel()
	require.Error(b.t, <-loaded)
}
