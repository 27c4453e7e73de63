package shim

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// PiglitTests lists piglit's OpenCL programs, and its shader tests with a compute shader, by their
// paths in fetch.PiglitFolder.
func (h *Host) PiglitTests() (list []string, err error) {
	top := filepath.Join(h.mesa.Root, fetch.PiglitFolder)
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		switch filepath.Ext(name) {
		case ".cl":
			list = append(list, inside)
		case ".shader_test":
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if bytes.Contains(text, []byte("[compute shader]")) {
				list = append(list, inside)
			}
		}
		return nil
	})
	return list, err
}

// PiglitResult is what a test of piglit gave: "pass", "fail", "skip", "crash", "timeout", or
// "uncompiled" if Mesa did not translate a program.
type PiglitResult struct {
	Card     string // on our card
	Idle     string // on a card whose engines do nothing
	Software string // on Mesa's renderer
	Why      string // what stopped the program on our card
}

// Counts reports whether the test says something of a card: it passes on Mesa's renderer, Mesa can
// compile it for a card, and one that does nothing fails it.
func (r *PiglitResult) Counts() bool { return r.Software == "pass" && r.Idle == "fail" }

// PiglitDevice is what a test runs on.
type PiglitDevice struct {
	device string
	config Config
}

// The devices of a PiglitResult.
var (
	PiglitCard     = PiglitDevice{OurCard, Config{}}
	PiglitIdle     = PiglitDevice{OurCard, Config{Idle: true}}
	PiglitSoftware = PiglitDevice{"llvmpipe", Config{}}
)

// piglitLimit is for a test on one device.
const piglitLimit = 3 * time.Minute

// PiglitOn runs a test on a device. It returns the result, and what stopped the program if that is
// known.
func (h *Host) PiglitOn(ctx context.Context, test string, on PiglitDevice) (result, why string, err error) {
	limited, cancel := context.WithTimeout(ctx, piglitLimit)
	defer cancel()
	var out bytes.Buffer
	_, _ = h.Run(limited, Program{Argv: PiglitCommand(test), Env: PiglitEnv, Device: on.device, Config: on.config, Output: &out, Errors: &out})
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	_, why, _ = strings.Cut(out.String(), "umbra shim: ")
	why, _, _ = strings.Cut(why, "\n")
	result = PiglitVerdict(out.String())
	if result == "crash" && limited.Err() != nil {
		result = "timeout"
	}
	return result, why, nil
}

// PiglitEnv is added to the environment of each test.
var PiglitEnv = []string{"PIGLIT_PLATFORM=surfaceless_egl"}

// PiglitCommand is how a test is started.
func PiglitCommand(test string) []string {
	file := fetch.PiglitFolder + "/" + test
	if filepath.Ext(test) == ".shader_test" {
		return []string{fetch.PiglitFolder + "/bin/shader_runner", file, "-auto", "-fbo"}
	}
	return []string{fetch.PiglitFolder + "/bin/cl-program-tester", file}
}

var piglitVerdict = regexp.MustCompile(`PIGLIT: \{"result": "(\w+)"`)

// PiglitVerdict is the result of a test with this output.
func PiglitVerdict(output string) string {
	verdict := piglitVerdict.FindStringSubmatch(output)
	switch {
	case strings.Contains(output, "shader translation failed"):
		return "uncompiled"
	case verdict != nil:
		return verdict[1]
	}
	return "crash"
}

// Piglit runs a test on all devices, until it is known that it does not count. It begins where a test
// is fastest.
func (h *Host) Piglit(ctx context.Context, test string) (r PiglitResult, err error) {
	if r.Idle, _, err = h.PiglitOn(ctx, test, PiglitIdle); err != nil || r.Idle != "fail" {
		return r, err
	}
	if r.Software, _, err = h.PiglitOn(ctx, test, PiglitSoftware); err != nil || r.Software != "pass" {
		return r, err
	}
	r.Card, r.Why, err = h.PiglitOn(ctx, test, PiglitCard)
	return r, err
}

// PiglitReason is why a test need not pass.
type PiglitReason struct {
	// Class is "nothing" if the test says nothing of a card, "mesa" if Mesa's compiler makes a wrong
	// program of it, or "card" if ours is wrong.
	Class string
	Text  string
}

//go:embed testdata/piglit.txt
var piglitReasons string

// PiglitReasons has the tests that need not pass with Mesa 25.
func PiglitReasons() (map[string]PiglitReason, error) {
	list := make(map[string]PiglitReason)
	var reason PiglitReason
	for n, line := range strings.Split(piglitReasons, "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			class, text, ok := strings.Cut(line[1:], "] ")
			if !ok || class != "nothing" && class != "mesa" && class != "card" {
				return nil, fmt.Errorf("testdata/piglit.txt:%d: want [nothing], [mesa] or [card], and a reason", n+1)
			}
			reason = PiglitReason{class, text}
		case list[line].Class != "":
			return nil, fmt.Errorf("testdata/piglit.txt:%d: %s was there before", n+1, line)
		default:
			list[line] = reason
		}
	}
	return list, nil
}
