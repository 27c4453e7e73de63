package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// onCard are the tests of each suite that a card takes. On one of the host's driver they cannot see the card's memory, nor
// stop its time: tenants.go has what package shares shows.
var onCard = map[string]map[string]string{
	soft:   {"isolation": ".", "windows": ".", "shares": "."},
	nvidia: {"isolation": "TestHostGate"},
}

// suites runs the suites that have in-process drivers of guests, against this card.
func (r *run) suites() {
	for _, name := range slices.Sorted(maps.Keys(onCard[r.card])) {
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
	cmd := exec.CommandContext(ctx, filepath.Join(r.dir, "bin", name+".test"), "-test.v", "-test.timeout=8m", "-test.run", onCard[r.card][name])
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.work, log, log
	cmd.Env = append(os.Environ(), "UMBRA_TEST_CARD="+r.card, "UMBRA_TEST_UMBRA="+filepath.Join(r.dir, "bin/umbra"), "RAPID_CHECKS=20", "RAPID_NOFAILFILE=true")
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
	if runErr == nil && count["PASS"] == 0 {
		return errors.New("no test ran")
	}
	if runErr != nil {
		return fmt.Errorf("%w: %s", runErr, strings.Join(broken, ", "))
	}
	return nil
}
