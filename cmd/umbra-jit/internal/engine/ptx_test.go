package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/smtest"
	"github.com/umbra-gpu/umbra/tests/smtest/launches"
)

// ptxForm is an instruction as PTX has it, and ptxForms those that make the same bits as package interp: floats are
// rounded to the nearest and keep denormals, and nothing is called.
var (
	ptxForm  = regexp.MustCompile(`(?m)^\t(?:@!?%p\d+ )?([a-z][a-z0-9.:_]*)`)
	ptxForms = regexp.MustCompile(`^(mov|add|sub|mul|mad|div|rem|and|or|xor|not|neg|abs|shl|shr|shf|prmt|bfe|bfi|bfind|clz|popc|brev|min|max|setp|selp|cvt|bra|ret|ld\.param|(ld|st|atom)\.(global|shared)|membar|bar\.sync)` +
		`(\.(lo|hi|wide|rn|rni|rmi|rpi|rzi|rz|eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|nan|num|wrap|uni|pred|v2|v4|add|cas|exch|gl|cta|l|r|[bsuf](8|16|32|64)))*$` +
		`|^(fma|sqrt|rcp)\.rn\.f(32|64)$`)
	ptxFloat = regexp.MustCompile(`^(add|sub|mul|div)\.f`) // without a rounding, which an assembler may fuse
)

// kernelOf makes a kernel of the program of a launch.
func kernelOf(l *interp.Launch) (*compile.Kernel, error) {
	return compile.CompileKernel(&fermi.FrontEnd{Launch: l}, fermi.Options(l))
}

// ptxas returns CUDA's assembler, "" if it is not installed.
func ptxas() string {
	for _, name := range []string{"ptxas", "/usr/local/cuda/bin/ptxas"} {
		if at, err := exec.LookPath(name); err == nil {
			return at
		}
	}
	return ""
}

// Kernels of Mesa's programs are PTX without unknown forms, which the assembler takes if there is one.
func TestPTX(t *testing.T) {
	c := jittest.PTXCompiler(t)
	files, err := filepath.Glob("testdata/*.launches")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".launches"), func(t *testing.T) {
			list, err := launches.Read(file)
			require.NoError(t, err)
			seen := make(map[string]bool)
			for _, l := range list {
				k, err := kernelOf(l.On(l.Copy()))
				if strings.HasPrefix(filepath.Base(file), "histogram") {
					require.EqualError(t, err, "kernels have no code for ld lock: locks, st unlock: locks")
					return
				}
				require.NoError(t, err)
				if seen[k.IR] {
					continue
				}
				seen[k.IR] = true
				ptx, err := c.Assemble(k.IR, llvm.Full)
				require.NoError(t, err)
				requireForms(t, string(ptx))
				if as := ptxas(); as != "" {
					name := filepath.Join(t.TempDir(), "kernel.ptx")
					require.NoError(t, os.WriteFile(name, ptx, 0o600))
					out, err := exec.Command(as, "-arch=sm_80", "-o", os.DevNull, name).CombinedOutput()
					require.NoError(t, err, "%s", out)
				}
			}
		})
	}
}

func requireForms(t *testing.T, ptx string) {
	require.Contains(t, ptx, ".visible .entry "+compile.KernelName)
	require.NotContains(t, ptx, ".func")
	var unknown []string
	for _, m := range ptxForm.FindAllStringSubmatch(ptx, -1) {
		if form := m[1]; !ptxForms.MatchString(form) || ptxFloat.MatchString(form) {
			unknown = append(unknown, form)
		}
	}
	slices.Sort(unknown)
	require.Empty(t, slices.Compact(unknown), ptx)
}

// What kernels lack is an error, and no code.
func TestNoKernel(t *testing.T) {
	for text, want := range map[string]string{
		"vote any $r0 $p0 $p0\nexit":                      "kernels have no code for vote any: lanes of a thread",
		"ld b32 $r0 ca l[0x0]\nexit":                      "kernels have no code for ld: local memory",
		"ld b32 $r0 c0[$r0+0x8]\nexit":                    "", // no register has another value than zero
		"mov b32 $r0 $tidx\nld b32 $r0 c0[$r0+0x8]\nexit": "kernels have no code for ld: constants at any place",
		"bar popc 0x1 0x0 0x0 0x0 0x1\nexit":              "",
		"bar popc 0x1 $r1 0x0 0x0 $p0\nexit":              "kernels have no code for bar",
	} {
		m := smtest.NewMemory(assemble(t, text))
		_, err := kernelOf(newLaunch(m, [3]uint32{64, 1, 1}))
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}
