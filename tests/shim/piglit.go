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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// piglitLimit is for a test on one device.
const piglitLimit = 3 * time.Minute

// piglitOn runs a test on a device. It returns the result, and what stopped the program if that is
// known.
func (h *Host) piglitOn(ctx context.Context, test, device string, cfg Config) (result, why string, err error) {
	limited, cancel := context.WithTimeout(ctx, piglitLimit)
	defer cancel()
	var out bytes.Buffer
	_, _ = h.Run(limited, Program{Argv: PiglitCommand(test), Env: PiglitEnv, Device: device, Config: cfg, Output: &out, Errors: &out})
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
	if r.Idle, _, err = h.piglitOn(ctx, test, OurCard, Config{Idle: true}); err != nil || r.Idle != "fail" {
		return r, err
	}
	if r.Software, _, err = h.piglitOn(ctx, test, Renderer, Config{}); err != nil || r.Software != "pass" {
		return r, err
	}
	r.Card, r.Why, err = h.piglitOn(ctx, test, OurCard, Config{})
	return r, err
}

// PiglitEach calls f with the index of each test and a host that is free, until the context ends.
func PiglitEach(ctx context.Context, hosts []*Host, tests []string, f func(h *Host, i int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for _, h := range hosts {
		working.Go(func() {
			for i := int(next.Add(1) - 1); i < len(tests) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				f(h, i)
			}
		})
	}
	working.Wait()
}

//go:embed testdata/piglit.txt
var piglitReasons string

// PiglitReasons has the tests that need not pass with Mesa 25, each with the class of its reason: "nothing"
// if the test says nothing of a card, "mesa" if Mesa's compiler makes a wrong program of it, or "card" if
// ours is wrong.
func PiglitReasons() (map[string]string, error) {
	list := make(map[string]string)
	class := ""
	for n, line := range strings.Split(piglitReasons, "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			class, _, _ = strings.Cut(line[1:], "] ")
			if !slices.Contains([]string{"nothing", "mesa", "card"}, class) {
				return nil, fmt.Errorf("testdata/piglit.txt:%d: want [nothing], [mesa] or [card], and a reason", n+1)
			}
		case list[line] != "":
			return nil, fmt.Errorf("testdata/piglit.txt:%d: %s was there before", n+1, line)
		default:
			list[line] = class
		}
	}
	return list, nil
}
