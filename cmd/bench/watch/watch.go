// Package watch measures what a guest notices of a hostile guest or client on the same card.
//
// For each attack it starts a server as a process of its own. A victim in this process works at
// fixed times, by turns without and beside the attack, which is another process. The package has
// no locks. Run owns all processes and goroutines, and has ended them when it returns.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Options of a run.
type Options struct {
	Only     []string // attacks; none are all
	Server   string   // the program that serves; "" is this one
	Policy   string   // of the scheduler; "" is the default
	Rounds   int      // of each attack
	Window   time.Duration
	Progress io.Writer // for a person who waits
}

// Check refuses options that make no sense.
func (o *Options) Check() error {
	known := names()
	for _, n := range o.Only {
		if !slices.Contains(known, n) {
			return &config.Error{Where: "--only", Value: n, Reason: "no such attack; " + config.Known(n, known)}
		}
	}
	return nil
}

// What a victim may notice.
const (
	mostRatio   = 2.0                    // of the 99th percentiles
	fairShare   = 50.0                   // percent of an engine that two guests want
	mostLoss    = 3.0                    // of that, in points
	mostControl = 100 * time.Millisecond // for the answer to a request
	mostEnd     = 2 * time.Second        // from SIGTERM to the server's end
)

// Row is what was measured beside one attack.
type Row struct {
	Attack  string        `json:"attack"`
	Who     string        `json:"who"`
	About   string        `json:"about"`
	Work    []Work        `json:"work"`
	Traps   float64       `json:"traps"`           // the victim's, by those without the attack
	Share   *Share        `json:"share,omitempty"` // of attacks that want the engine too
	Control time.Duration `json:"control_ns"`      // the slowest answer of the control socket
	End     time.Duration `json:"end_ns"`          // from SIGTERM to the server's end
	Notes   []string      `json:"notes,omitempty"`
	Failed  []string      `json:"failed,omitempty"`  // what the victim noticed beyond the bounds
	Skipped string        `json:"skipped,omitempty"` // why the attack was not made
}

// Work is one kind of the victim's work. The ratios are medians of the rounds' ratios.
type Work struct {
	Name     string  `json:"name"`
	Quiet    Times   `json:"quiet"`
	Attacked Times   `json:"attacked"`
	Median   float64 `json:"p50_ratio"`
	P99      float64 `json:"p99_ratio"`
	Noise    float64 `json:"noise"` // between the 99th percentiles of the rounds without the attack
}

// Share is the victim's part of an engine that both want, in percent.
type Share struct {
	Quiet    float64 `json:"quiet"` // beside a neighbour that makes such requests
	Attacked float64 `json:"attacked"`
}

// least is what the victim may expect.
func (s *Share) least() float64 { return min(s.Quiet, fairShare) - mostLoss }

// Times are quantiles.
type Times struct {
	Median time.Duration `json:"p50_ns"`
	P99    time.Duration `json:"p99_ns"`
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

func (r *Row) fail(format string, args ...any) {
	r.Failed = append(r.Failed, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

// Run measures. If ctx ends, it returns its error and the rows that are complete.
func Run(ctx context.Context, o Options) ([]Row, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Server == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		o.Server = exe
	}
	var rows []Row
	for i := range attacks {
		a := &attacks[i]
		if len(o.Only) > 0 && !slices.Contains(o.Only, a.name) {
			continue
		}
		fmt.Fprintf(o.Progress, "%s: %s\n", a.name, a.about)
		row, err := o.measure(ctx, a)
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", a.name, err)
		}
		row.judge()
		rows = append(rows, *row)
	}
	return rows, nil
}

// run is the measurement of one attack.
type run struct {
	Options
	*Row
	attack *attack
	server *process
	api    *api.Client
	dir    string
	victim *victim

	quiet, attacked []window // by round
	traps           [2]float64
	over            bool // the server was ended
}

func (o *Options) measure(ctx context.Context, a *attack) (_ *Row, err error) {
	r := &run{Options: *o, attack: a, Row: &Row{Attack: a.name, Who: a.who, About: a.about}}
	if r.dir, err = os.MkdirTemp("", "umbra-watch-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if err := r.serve(ctx); err != nil {
		return nil, err
	}
	defer r.server.kill()
	if r.victim, err = newVictim(ctx, r.path("victim.sock")); err != nil {
		return nil, err
	}
	defer r.victim.g.Close() // the server may have ended
	for round := range o.Rounds {
		if err := r.round(ctx, round == o.Rounds-1); err != nil || r.Skipped != "" || r.over {
			return r.Row, err
		}
	}
	return r.Row, nil
}

func (r *run) path(name string) string { return filepath.Join(r.dir, name) }

// serve starts a server with two GPUs.
func (r *run) serve(ctx context.Context) (err error) {
	args := []string{"serve", "--json", "--control", r.path("control.sock"), "--vram", "1GiB"}
	for _, name := range []string{"victim", "attacker"} {
		args = append(args, "--gpu", fmt.Sprintf("name=%s,socket=%s,vram=256MiB,channels=40", name, r.path(name+".sock")))
	}
	if r.Policy != "" {
		args = append(args, "--sched-policy", r.Policy)
	}
	r.server, err = start(ctx, r.Server, args...)
	r.api = api.NewClient(r.path("control.sock"))
	return err
}

// round measures a window without the attack and one beside it. After the last round the server
// ends while the attack goes on.
func (r *run) round(ctx context.Context, last bool) error {
	if r.attack.beside != "" {
		quiet, err := r.assault(ctx, r.attack.beside)
		if err != nil {
			return err
		}
		defer quiet.kill()
		r.observe(ctx, &r.quiet, 0)
		if r.Share = new(Share); last {
			r.Share.Quiet = r.share(ctx)
		}
		quiet.kill()
	} else {
		r.observe(ctx, &r.quiet, 0)
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("without the attack: %s", strings.Join(r.Failed, "; "))
	}
	attack, err := r.assault(ctx, r.attack.name)
	if err != nil || r.Skipped != "" {
		return err
	}
	defer attack.kill()
	r.observe(ctx, &r.attacked, 1)
	if last && len(r.Failed) == 0 && r.Share != nil {
		r.Share.Attacked = r.share(ctx)
	}
	r.note(attack)
	r.summarize()
	if r.over = last || len(r.Failed) > 0 || r.Control > mostEnd; r.over {
		r.end()
	}
	return nil
}

// assault starts an attack, and returns once it is under way.
func (r *run) assault(ctx context.Context, name string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, 3*patience) // it may have stopped the server by then
	defer cancel()
	p, err := start(limited, exe, "bench", "attack", name, r.path("attacker.sock"))
	if _, why, skipped := strings.Cut(p.stderr(), skip); skipped {
		r.Skipped = strings.TrimSpace(why)
	}
	if name == r.attack.name && p.cmd.Process != nil {
		err = ctx.Err() // an attack that was ended by the server is measured too
	}
	return p, err
}

// observe adds a window, and how the control socket answers meanwhile.
func (r *run) observe(ctx context.Context, to *[]window, side int) {
	trapsBefore, interruptsBefore := r.count()
	answers := make(chan time.Duration)
	stop := make(chan struct{})
	go func() { answers <- r.control(ctx, stop) }()
	w, err := r.victim.watch(ctx, r.Window)
	close(stop)
	slowest := <-answers
	*to = append(*to, w)
	if side == 1 {
		r.Control = max(r.Control, slowest)
	}
	if err != nil {
		select {
		case <-r.server.ended:
			r.fail("the server ended: %s", lastLine(r.server.stderr()))
		case <-time.After(time.Second):
			r.fail("the victim lost its work: %v", err)
		}
	}
	if traps, interrupts := r.count(); traps > trapsBefore {
		r.traps[side] += float64(traps-trapsBefore) / float64(max(len(w[0]), 1))
		if side == 1 && r.attack.silent && interrupts > interruptsBefore {
			r.fail("the attacker received %d events for %d pieces of the victim's work", interrupts-interruptsBefore, len(ops)*len(w[0]))
		}
	}
}

// count returns the victim's traps and the attacker's interrupts.
func (r *run) count() (traps, interrupts uint64) {
	s, _ := r.status() // a server without an answer fails elsewhere
	for i := range s.GPUs {
		if s.GPUs[i].Name == "victim" {
			traps = s.GPUs[i].Traps
		} else {
			interrupts += s.GPUs[i].Interrupts
		}
	}
	return traps, interrupts
}

const patience = 5 * time.Second // QEMU's own for a reply

func (r *run) status() (api.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.api.Status(ctx)
}

// control asks for the status until it is stopped, and adds and removes a GPU once. It returns
// the time of the slowest answer.
func (r *run) control(ctx context.Context, stop <-chan struct{}) (slowest time.Duration) {
	ask := func(do func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		at := time.Now()
		if do(ctx) != nil {
			slowest = patience
		}
		slowest = max(slowest, time.Since(at))
	}
	ask(func(ctx context.Context) error {
		_, err := r.api.Add(ctx, api.AddRequest{GPU: "name=third,vram=64MiB,channels=8,socket=" + r.path("third.sock")})
		return err
	})
	ask(func(ctx context.Context) error {
		_, err := r.api.Remove(ctx, "third", false)
		return err
	})
	for {
		ask(func(ctx context.Context) error {
			_, err := r.api.Status(ctx)
			return err
		})
		select {
		case <-stop:
			return slowest
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// share has the victim want the whole engine, and returns what it gets in percent.
func (r *run) share(ctx context.Context) float64 {
	before, err1 := r.status()
	err2 := r.victim.saturate(ctx, r.Window)
	after, err3 := r.status()
	if err := errors.Join(err1, err2, err3); err != nil {
		r.fail("the victim lost its work: %v", err)
		return 0
	}
	victim := busy(&after, "victim") - busy(&before, "victim")
	all := victim + busy(&after, "attacker") - busy(&before, "attacker")
	return 100 * float64(victim) / float64(max(all, 1))
}

// busy is the time of a guest on the engine that saturate and the attacks use.
func busy(s *api.Status, name string) (d time.Duration) {
	for i := range s.GPUs {
		if g := &s.GPUs[i]; g.Name == name && g.CardTime != nil {
			for k := range g.CardTime.Engines {
				if a := &g.CardTime.Engines[k]; a.Engine == engineName {
					d += a.Busy
				}
			}
		}
	}
	return d
}

// note records how the attack fared.
func (r *run) note(attack *process) {
	if text := attack.stderr(); text != "" && len(r.Notes) == 0 {
		r.Notes = append(r.Notes, "the attack: "+lastLine(text))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	report, _ := r.api.Report(ctx) // a server without an answer fails elsewhere
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
		case !slices.Contains(r.Notes, text):
			r.Notes = append(r.Notes, text)
		}
	}
}

// end ends the server.
func (r *run) end() {
	at := time.Now()
	r.server.terminate()
	select {
	case <-r.server.ended:
	case <-time.After(5 * mostEnd):
	}
	r.End = time.Since(at)
}

// summarize computes the quantiles of all rounds.
func (r *run) summarize() {
	r.Work = nil
	for i, op := range ops {
		w := Work{Name: op.name, Quiet: times(r.quiet, i), Attacked: times(r.attacked, i)}
		var medians, p99s []float64
		var quiet []time.Duration
		for k := range r.attacked {
			q, a := times(r.quiet[k:k+1], i), times(r.attacked[k:k+1], i)
			quiet = append(quiet, q.P99)
			medians, p99s = append(medians, ratio(a.Median, q.Median)), append(p99s, ratio(a.P99, q.P99))
		}
		slices.Sort(medians)
		slices.Sort(p99s)
		w.Median, w.P99, w.Noise = medians[len(medians)/2], p99s[len(p99s)/2], ratio(slices.Max(quiet), slices.Min(quiet))
		r.Work = append(r.Work, w)
	}
	if r.traps[0] > 0 {
		r.Traps = r.traps[1] / r.traps[0]
	}
}

func times(windows []window, op int) (t Times) {
	var all []time.Duration
	for _, w := range windows {
		all = append(all, w[op]...)
	}
	if len(all) == 0 {
		return t
	}
	slices.Sort(all)
	return Times{all[len(all)/2], all[len(all)*99/100]}
}

// judge names what exceeds its bound.
func (r *Row) judge() {
	if r.Skipped != "" {
		return
	}
	for i := range r.Work {
		if w := &r.Work[i]; w.P99 > mostRatio {
			r.fail("%s: p99 is %.1f times as long", w.Name, w.P99)
		}
	}
	if r.Traps > mostRatio {
		r.fail("%.1f times as many traps", r.Traps)
	}
	if r.Share != nil && r.Share.Attacked < r.Share.least() {
		r.fail("%.0f %% of the engine, of at least %.0f", r.Share.Attacked, r.Share.least())
	}
	if r.Control > mostControl {
		r.fail("the control socket answers in %v", r.Control.Round(time.Millisecond))
	}
	if r.End > mostEnd {
		r.fail("SIGTERM ends the server in %v", r.End.Round(time.Millisecond))
	}
}
