package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// The verdicts.
const (
	ok      = "ok"
	failed  = "FAILED"
	refused = "refused" // the card says that it cannot do that
	hung    = "hung"    // not ended in time
)

// errRefused is a step's error where the card says that it cannot do something.
var errRefused = errors.New("the card does not do this")

// report is the outcome of a run.
type report struct {
	Machine []string  `json:"machine"` // lines about it, the card and its driver
	Began   time.Time `json:"began"`
	Steps   []*result `json:"steps"`
}

// result is the outcome of a step.
type result struct {
	Step    string   `json:"step"`
	Verdict string   `json:"verdict"`
	Seconds float64  `json:"seconds"`
	Problem string   `json:"problem,omitempty"`
	Figures []figure `json:"figures,omitempty"`

	mu sync.Mutex // of Figures: guests report at once
}

// figure is something measured.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

func (s *result) note(name string, value float64, unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Figures = append(s.Figures, figure{name, value, unit})
}

// wants says whether a step, or one below it, is to be made.
func (r *run) wants(step string) bool {
	return len(r.only) == 0 || slices.ContainsFunc(r.only, func(o string) bool {
		return o == step || strings.HasPrefix(step, o+"/") || strings.HasPrefix(o, step+"/")
	})
}

// step makes a step if it is wanted. It says whether later steps can build on it.
func (r *run) step(name string, limit time.Duration, do func(ctx context.Context, s *result) error) bool {
	return !r.wants(name) || r.must(name, limit, do)
}

// must makes a step that others need.
func (r *run) must(name string, limit time.Duration, do func(ctx context.Context, s *result) error) bool {
	if r.ctx.Err() != nil {
		return false
	}
	fmt.Printf("%-24s ", name)
	ctx, cancel := context.WithTimeoutCause(r.ctx, limit, fmt.Errorf("not done in %v", limit))
	defer cancel()
	s, began, done := &result{Step: name}, time.Now(), make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		done <- do(ctx, s)
	}()
	out := &result{Step: name, Verdict: ok}
	select {
	case err := <-done:
		switch {
		case errors.Is(err, errRefused):
			out.Verdict, out.Problem = refused, err.Error()
		case err != nil:
			out.Verdict, out.Problem = failed, err.Error()
		}
	case <-time.After(limit + r.grace):
		out.Verdict, out.Problem = hung, fmt.Sprintf("did not end in %v", limit+r.grace)
	}
	out.Seconds = time.Since(began).Seconds()
	s.mu.Lock()
	out.Figures = slices.Clone(s.Figures)
	s.mu.Unlock()
	line, _, _ := strings.Cut(out.Problem, "\n")
	fmt.Printf("%-8s %6.1f s  %.160s\n", out.Verdict, out.Seconds, line+out.figures())
	r.results.Steps = append(r.results.Steps, out)
	if err := r.results.write(); err != nil {
		fmt.Fprintln(os.Stderr, "real-card:", err)
	}
	return out.Verdict == ok || out.Verdict == refused
}

// figures are those of a step in a line.
func (s *result) figures() string {
	var out []string
	for _, f := range s.Figures {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %.4g %s", f.Name, f.Value, f.Unit)))
	}
	return strings.Join(out, ", ")
}

func (p *report) write() error {
	data, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n| step | verdict | s | figures |\n|---|---|---|---|\n", p.Began.UTC().Format("2006-01-02 15:04 UTC"), strings.Join(p.Machine, "  \n"))
	for _, s := range p.Steps {
		line, _, _ := strings.Cut(s.Problem, "\n")
		text := strings.ReplaceAll(strings.Trim(line+"; "+s.figures(), "; "), "|", "\\|")
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", s.Step, s.Verdict, s.Seconds, text)
	}
	return errors.Join(os.WriteFile("results.json", data, 0o644),
		os.WriteFile("results.md", []byte(b.String()), 0o644))
}

// failed names the steps that failed.
func (p *report) failed() error {
	var names []string
	for _, s := range p.Steps {
		if s.Verdict == failed || s.Verdict == hung {
			names = append(names, s.Step)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return errors.New("failed: " + strings.Join(names, ", "))
}
