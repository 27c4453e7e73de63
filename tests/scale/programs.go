package scale

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Programs are the random programs that a test runs. Each has a seed and a number, which say all about it.
type Programs struct {
	Seed         uint64
	First, Count int
	end          time.Time // zero: none
}

// The environment of a test that runs random programs: how many, from which seed, from which number of that seed, and for how
// long at most.
const (
	envPrograms = "UMBRA_TEST_PROGRAMS"
	envSeed     = "UMBRA_TEST_SEED"
	envFirst    = "UMBRA_TEST_FIRST"
	envSeconds  = "UMBRA_TEST_SECONDS"
)

// ProgramsOf returns those that the environment asks for: if it does not say how many, the first value in make test, and the
// second in make test-release.
func ProgramsOf(few, many int) (Programs, error) {
	p := Programs{Seed: 1, Count: Of(few, many)}
	var seconds int
	for name, to := range map[string]*int{envPrograms: &p.Count, envFirst: &p.First, envSeconds: &seconds} {
		if err := number(name, to); err != nil {
			return p, err
		}
	}
	if text := os.Getenv(envSeed); text != "" {
		var err error
		if p.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return p, fmt.Errorf("%s=%s: want a number of at most 64 bits", envSeed, text)
		}
	}
	if seconds > 0 {
		p.end = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	return p, nil
}

func number(name string, to *int) error {
	text := os.Getenv(name)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%s=%s: want a number of at least 0", name, text)
	}
	*to = n
	return nil
}

// Over reports whether the time is over that the environment gives.
func (p *Programs) Over() bool { return !p.end.IsZero() && time.Now().After(p.end) }

// Only is the environment of a run of one program.
func (p *Programs) Only(n int) string {
	return fmt.Sprintf("%s=%d %s=%d %s=1", envSeed, p.Seed, envFirst, n, envPrograms)
}
