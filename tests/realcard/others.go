package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/tests/nouveau"
)

// other is a program of others, with what it says if its results are right.
type other struct {
	name  string
	env   []string
	argv  []string
	right *regexp.Regexp
	// despite: its exit status speaks of more than that.
	despite bool
}

const (
	llama = "/usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-llama-archs"
	ops   = "/usr/libexec/x86_64-linux-gnu/ggml/test-backend-ops"
)

var (
	opencl = []string{"RUSTICL_ENABLE=zink"}
	opengl = []string{"MESA_LOADER_DRIVER_OVERRIDE=zink"}
	vulkan = []string{"LC_ALL=C"}
)

// others are held to the processor by themselves. The emulated one is slow, so they are not whole suites. Of llama, the
// dense model is right, and the one with experts is not; with matrix cores the card stops both.
// vkpeak checks nothing: that it has figures shows that its programs ended.
var others = []other{
	{"llama", append(vulkan, "GGML_VK_DISABLE_COOPMAT=1"), []string{llama, "-b", "Vulkan0", "-a", "^llama$"}, regexp.MustCompile(`llama\|.*Dense\|.*OK.*\|.*OK.*\|.*OK`), true},
	{"ops", vulkan, []string{ops, "test", "-b", "Vulkan0", "-o", "SCALE"}, regexp.MustCompile(`Backend Vulkan0: .*OK`), false},
	{"vkfft", nil, []string{"vkfft"}, regexp.MustCompile(`NVK .* transforms right`), false},
	{"vkpeak", nil, []string{"vkpeak", "0", "fp32-vec4,int32-scalar,copy-d2d"}, regexp.MustCompile(`(?s)NVK.*fp32-vec4\s*=\s*[1-9].*int32-scalar\s*=\s*[1-9].*copy-d2d\s*=\s*[1-9]`), false},
	{"opengl", opengl, []string{"compute"}, regexp.MustCompile(`zink`), false},
	{"clinfo", opencl, []string{"clinfo", "-l"}, regexp.MustCompile(`zink|NVK`), false},
	{"saxpy", opencl, []string{"saxpy", "1048576"}, regexp.MustCompile(`1048576 sums equal`), false},
	{"reduce", opencl, []string{"reduce", "4096"}, regexp.MustCompile(`(?m)^reduce: .* on the device`), false},
}

// otherPrograms has a guest with a newer Mesa run them, if the bundle has its image.
func (r *run) otherPrograms() {
	g := &guests{run: r, name: "others", weights: equal(1), image: "others.cpio", memory: 6 << 10}
	if _, err := os.Stat(filepath.Join(r.dir, g.image)); err != nil || r.card != nvidia {
		return
	}
	var steps []guestStep
	for _, o := range others {
		if _, err := os.Stat(filepath.Join(r.dir, "others.vkpeak")); err != nil && o.name == "vkpeak" {
			continue // it is in the image only if its sources were given
		}
		steps = append(steps, guestStep{o.name, 4 * time.Minute, func(ctx context.Context, _ *result) error { return g.other(ctx, o) }})
	}
	g.life(steps)
}

// other runs one, and keeps what it says.
func (g *guests) other(ctx context.Context, o other) error {
	out, err := runIn(ctx, g.vms[0], o.env, o.argv...)
	log, logErr := g.vms[0].KernelLog(ctx)
	k, _ := nouveau.Of(lab.ChipGH100, g.vms[0].Kernel())
	said := fmt.Sprintf("%s\n\n%v\n", out, err)
	if logErr == nil {
		for _, p := range k.Problems(log, 1) {
			said += "kernel: " + p + "\n"
		}
	}
	if werr := os.WriteFile("others-"+o.name+".txt", []byte(said), 0o644); err == nil {
		err = werr
	}
	if o.despite && o.right.MatchString(out) {
		err = nil
	}
	if err == nil && !o.right.MatchString(out) {
		err = fmt.Errorf("it said: %.300s", out[max(0, len(out)-300):])
	}
	return err
}
