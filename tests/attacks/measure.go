package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// What a victim may notice.
const (
	mostRatio   = 2.0                    // of the 99th percentiles
	fairShare   = 50.0                   // percent of an engine that two guests want
	mostLoss    = 3.0                    // of that, in points
	mostControl = 100 * time.Millisecond // for the answer to a request
	mostEnd     = 2 * time.Second        // from SIGTERM to the server's end
)

const patience = 5 * time.Second // QEMU's own for a reply

// run is what was measured beside one attack.
type run struct {
	attack *attack
	other  string // attack.beside, or ""
	server *testserver.Process
	victim *victim
	window time.Duration

	quiet, attacked []window   // by round
	counted         [2]float64 // traps, without and beside the attack
	work            [len(ops)]ratios
	traps           float64 // the victim's, by those without the attack
	share           *share  // of attacks that want the engine too
	control, end    time.Duration
	notes           []string
	failed          []string // what the victim noticed beyond the bounds
}

// ratios of one kind of work are medians of the rounds' ratios.
type ratios struct {
	median, p99 float64
	noise       float64 // between the 99th percentiles of the rounds without the attack
}

// share is the victim's part of an engine that both want, in percent: beside a neighbour that makes
// such requests, and beside the attack.
type share struct{ quiet, attacked float64 }

func (r *run) fail(format string, args ...any) {
	r.failed = append(r.failed, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

// judge names what exceeds its bound.
func (r *run) judge() {
	for i, w := range r.work {
		if w.p99 > mostRatio {
			r.fail("%s: p99 is %.1f times as long", ops[i].name, w.p99)
		}
	}
	if r.traps > mostRatio {
		r.fail("%.1f times as many traps", r.traps)
	}
	if s := r.share; s != nil && s.attacked < min(s.quiet, fairShare)-mostLoss {
		r.fail("%.0f %% of the engine, of at least %.0f", s.attacked, min(s.quiet, fairShare)-mostLoss)
	}
	if r.control > mostControl {
		r.fail("the control socket answers in %v", r.control.Round(time.Millisecond))
	}
	if r.end > mostEnd {
		r.fail("SIGTERM ends the server in %v", r.end.Round(time.Millisecond))
	}
}

// measure makes one attack.
func (o *options) measure(ctx context.Context, a *attack) *run {
	dir := get(os.MkdirTemp("", "umbra-attack-"))
	defer os.RemoveAll(dir)
	compiler := "compiler: off"
	if strings.HasSuffix(a.name, compiled) {
		compiler = fmt.Sprintf("compiler: %s, llvm: %s", o.compiler.Program, o.compiler.LLVM)
	}
	must(os.WriteFile(filepath.Join(dir, testserver.ConfigFile), fmt.Appendf(nil, `
control: %s
card: {vram: 6GiB, %s}
scheduler: {policy: %s}
gpus:
  - {name: victim, socket: victim.sock, vram: 256MiB, channels: 40}
  - {name: attacker, socket: attacker.sock, vram: 256MiB, channels: 40}
  - {name: processor, socket: %s, vram: 4GiB, channels: 40, chip: gh100}
`, testserver.ControlSocket, compiler, o.policy, processor), 0o600))
	beside := a.beside
	if o.alone {
		beside = ""
	}
	r := &run{attack: a, other: beside, window: o.window, server: get(testserver.StartProcess(ctx, o.umbra, dir))}
	defer r.server.Kill()
	r.victim = newVictim(ctx, filepath.Join(dir, "victim.sock"))
	defer r.victim.g.Close() // the server may have ended
	for left := o.rounds; left > 0 && r.end == 0; left-- {
		r.round(ctx, left == 1)
		must(ctx.Err())
	}
	r.judge()
	return r
}

// round measures a window without the attack and one beside it. After the last round the server
// ends while the attack goes on.
func (r *run) round(ctx context.Context, last bool) {
	var s share
	r.beside(ctx, r.other, func() {
		if r.observe(ctx, &r.quiet, 0); r.other != "" {
			r.share, s.quiet = &s, r.engineShare(ctx)
		}
	})
	if len(r.failed) > 0 {
		must(fmt.Errorf("without the attack: %s", strings.Join(r.failed, "; ")))
	}
	r.beside(ctx, r.attack.name, func() {
		if r.observe(ctx, &r.attacked, 1); len(r.failed) == 0 && r.share != nil {
			s.attacked = r.engineShare(ctx)
		}
		r.note()
		r.summarize()
		if last || len(r.failed) > 0 || r.control > mostEnd {
			at := time.Now()
			_ = r.server.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			select {
			case <-r.server.Ended:
			case <-time.After(5 * mostEnd):
			}
			r.end = time.Since(at)
		}
	})
}

// beside calls do while an attack is under way, or one that the server ended. "" is no attack.
func (r *run) beside(ctx context.Context, name string, do func()) {
	if name == "" {
		do()
		return
	}
	log := get(os.Create(filepath.Join(r.server.Dir, attackLog)))
	defer log.Close()
	cmd := exec.Command(get(os.Executable()), attackCommand, name, filepath.Join(r.server.Dir, cmp.Or(sockets[name], "attacker.sock")))
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process
	stdout := get(cmd.StdoutPipe())
	p := get(lab.StartProcess(cmd))
	defer p.Kill()
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		_, _ = io.ReadFull(stdout, make([]byte, 1)) // returns at the process's end, too
	}()
	select {
	case <-ready:
	case <-time.After(3 * patience): // it may have stopped the server
	case <-ctx.Done():
	}
	must(ctx.Err())
	do()
}

const attackLog = "attack.log"

func (r *run) attackSaid() string {
	text, err := os.ReadFile(filepath.Join(r.server.Dir, attackLog))
	if err != nil {
		return err.Error()
	}
	return lastLine(string(text))
}

// observe adds a window, and how the control socket answers meanwhile.
func (r *run) observe(ctx context.Context, to *[]window, side int) {
	before := r.count()
	slowest := make(chan time.Duration)
	stop := make(chan struct{})
	go func() { slowest <- r.askControl(stop) }()
	w, err := r.victim.watch(ctx, r.window)
	close(stop)
	if d := <-slowest; side == 1 {
		r.control = max(r.control, d)
	}
	*to = append(*to, w)
	if err != nil {
		select {
		case <-r.server.Ended:
			r.fail("the server ended: %s", lastLine(r.server.Log()))
		case <-time.After(time.Second):
			r.fail("the victim lost its work: %v", err)
		}
		return
	}
	r.counted[side] += float64(r.count().traps-before.traps) / float64(len(w[0]))
}

// limited asks the server, for as long as QEMU would wait.
func limited[T any](do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return do(ctx)
}

// counts are the victim's traps, and the times of both on the engine that saturate and the attacks use.
type counts struct {
	traps            uint64
	victim, attacker time.Duration
}

// count asks the server. One without an answer fails elsewhere.
func (r *run) count() (c counts) {
	s, _ := limited(r.server.Status)
	for i := range s.GPUs {
		g, busy := &s.GPUs[i], &c.attacker
		if g.Name == "victim" {
			c.traps, busy = g.Traps, &c.victim
		}
		for k := 0; g.CardTime != nil && k < len(g.CardTime.Engines); k++ {
			if e := &g.CardTime.Engines[k]; e.Engine == engineName {
				*busy += e.Busy
			}
		}
	}
	return c
}

// askControl adds and removes a GPU, and asks for the status until it is stopped. It returns the
// time of the slowest answer.
func (r *run) askControl(stop <-chan struct{}) (slowest time.Duration) {
	add := func(ctx context.Context) (any, error) {
		return r.server.Add(ctx, api.AddRequest{GPU: "name=third,vram=64MiB,channels=8,socket=" + filepath.Join(r.server.Dir, "third.sock")})
	}
	remove := func(ctx context.Context) (any, error) { return r.server.Remove(ctx, "third", false) }
	status := func(ctx context.Context) (any, error) { return r.server.Status(ctx) }
	for ask := []func(context.Context) (any, error){add, remove, status}; ; ask = ask[len(ask)-1:] {
		for _, do := range ask {
			at := time.Now()
			if _, err := limited(do); err != nil {
				slowest = patience
			}
			slowest = max(slowest, time.Since(at))
		}
		select {
		case <-stop:
			return slowest
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// engineShare has the victim want the whole engine, and returns what it gets in percent.
func (r *run) engineShare(ctx context.Context) float64 {
	before := r.count()
	if err := r.victim.saturate(ctx, time.Now().Add(r.window)); err != nil {
		r.fail("the victim lost its work: %v", err)
	}
	after := r.count()
	victim, attacker := after.victim-before.victim, after.attacker-before.attacker
	return 100 * float64(victim) / float64(max(victim+attacker, 1))
}

// note records how the attack fared. A server without an answer fails elsewhere.
func (r *run) note() {
	if text := r.attackSaid(); text != "" && len(r.notes) == 0 {
		r.notes = append(r.notes, "the attack: "+text)
	}
	report, _ := limited(r.server.Report)
	if p := report.Card.Programs; p != nil {
		text := fmt.Sprintf("%d programs were compiled in %v, %d refused, %d processes lost; of the instructions there, %.1f %% ran as machine code",
			p.Compiled, p.CompileTime.Round(time.Millisecond), p.Refused, p.Lost, 100*float64(p.Native)/float64(max(p.Native+p.Interpreted, 1)))
		r.notes = append(slices.DeleteFunc(r.notes, func(s string) bool { return strings.Contains(s, " programs were compiled in ") }), text)
	}
	for i := range report.GPUs {
		g := &report.GPUs[i]
		if g.Connections.Panics > 0 {
			r.fail("the server contained %d failures of its own", g.Connections.Panics)
		}
		text := fmt.Sprintf("%s is out of service: %s", g.Name, cmp.Or(g.Quarantine, g.OutOfService))
		switch {
		case g.Quarantine == "" && g.OutOfService == "":
		case g.Name == "victim":
			r.fail("%s", text)
		case !slices.Contains(r.notes, text):
			r.notes = append(r.notes, text)
		}
	}
}

// summarize computes the ratios of all rounds.
func (r *run) summarize() {
	for i := range ops {
		var medians, p99s, quiet []float64
		for k := range r.attacked {
			q50, q99 := quantiles(r.quiet[k][i])
			a50, a99 := quantiles(r.attacked[k][i])
			medians, p99s, quiet = append(medians, a50/q50), append(p99s, a99/q99), append(quiet, q99)
		}
		slices.Sort(medians)
		slices.Sort(p99s)
		r.work[i] = ratios{medians[len(medians)/2], p99s[len(p99s)/2], slices.Max(quiet) / slices.Min(quiet)}
	}
	if r.counted[0] > 0 {
		r.traps = r.counted[1] / r.counted[0]
	}
}

// quantiles returns the median and the 99th percentile; without times, the ratios are 0.
func quantiles(times []time.Duration) (median, p99 float64) {
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	return float64(max(times[len(times)/2], 1)), float64(max(times[len(times)*99/100], 1))
}

// lastLine is the last line of a text, or the one that says why a program crashed.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "fatal error:") || strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "runtime:") {
			return l
		}
	}
	return lines[len(lines)-1]
}
