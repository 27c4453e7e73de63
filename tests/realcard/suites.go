package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// suites runs the suites that have in-process drivers of guests, against this card.
func (r *run) suites() {
	for _, name := range []string{"isolation", "windows", "shares"} {
		r.step("suites/"+name, 8*time.Minute, func(ctx context.Context, s *result) error { return r.suite(ctx, s, name) })
	}
}

func (r *run) suite(ctx context.Context, s *result, name string) error {
	file := "suite-" + name + ".log"
	log, err := os.Create(file)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(r.dir, "bin", name+".test"), "-test.v", "-test.timeout=8m")
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.work, log, log
	cmd.Env = append(os.Environ(), "UMBRA_TEST_CARD="+r.card, "RAPID_CHECKS=20", "RAPID_NOFAILFILE=true")
	runErr := cmd.Run()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	count := map[string]float64{}
	var broken []string
	for line := range strings.Lines(string(text)) {
		verdict, test, is := strings.Cut(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "--- ")), ": ")
		if !is || !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
			continue
		}
		count[verdict]++
		if verdict == "FAIL" {
			broken = append(broken, strings.Fields(test)[0])
		}
	}
	for _, verdict := range []string{"PASS", "FAIL", "SKIP"} {
		s.note(strings.ToLower(verdict), count[verdict], "")
	}
	if runErr != nil {
		return fmt.Errorf("%w: %s", runErr, strings.Join(broken, ", "))
	}
	return nil
}
