package shim

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// PiglitFolder is where Debian has piglit, in the folder of fetch.Piglit.
const PiglitFolder = "/usr/lib/x86_64-linux-gnu/piglit"

// PiglitTests lists piglit's OpenCL programs, and its shader tests with a compute shader.
func (h *Host) PiglitTests() (list []string, err error) {
	top := filepath.Join(h.mesa.Root, PiglitFolder)
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside := strings.TrimPrefix(name, h.mesa.Root)
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

// PiglitResult is what a test of piglit gave: "pass", "fail", "skip", or "crash".
type PiglitResult struct {
	Card     string // on our card
	Idle     string // on a card whose engines do nothing
	Software string // on Mesa's renderer
	Why      string // what stopped the program on our card
}

// Counts reports whether the test says something of a card: it passes on Mesa's renderer, Mesa can
// compile it for a card, and one that does nothing fails it.
func (r *PiglitResult) Counts() bool { return r.Software == "pass" && r.Idle == "fail" }

var piglitResult = regexp.MustCompile(`PIGLIT: \{"result": "(\w+)"`)

// Piglit runs a test three times.
func (h *Host) Piglit(ctx context.Context, test string) (r PiglitResult, err error) {
	argv := []string{PiglitFolder + "/bin/cl-program-tester", test}
	env := []string{"PIGLIT_PLATFORM=surfaceless_egl"}
	if filepath.Ext(test) == ".shader_test" {
		argv = []string{PiglitFolder + "/bin/shader_runner", test, "-auto", "-fbo"}
	}
	for _, run := range []struct {
		result *string
		device string
		cfg    Config
		env    string
	}{
		{&r.Software, "llvmpipe", Config{}, "LIBGL_ALWAYS_SOFTWARE=1"},
		{&r.Idle, OurCard, Config{Idle: true}, "NOUVEAU_DISABLE_FENCES=true"},
		{&r.Card, OurCard, Config{}, "MESA_LOADER_DRIVER_OVERRIDE=nouveau"},
	} {
		var out bytes.Buffer
		_, err := h.Run(ctx, Program{Argv: argv, Env: append(env, run.env), Device: run.device, Config: run.cfg, Output: &out, Errors: &out})
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		*run.result = "crash"
		if m := piglitResult.FindSubmatch(out.Bytes()); m != nil {
			*run.result = string(m[1])
		}
		if err != nil && run.result == &r.Card {
			if _, why, ok := strings.Cut(out.String(), "umbra shim: "); ok {
				r.Why, _, _ = strings.Cut(why, "\n")
			}
		}
	}
	return r, nil
}
