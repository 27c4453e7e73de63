// Package arch holds the import rules of this repository. Its tests check every Go file
// against them, independent of its build constraints. They also check that the aggregator's rooms
// import only lower layers, where unsafe and cgo are used, that packages have one doc comment,
// and that links between documents are valid.
package arch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Module is the path of the root module.
const Module = "github.com/umbra-gpu/umbra"

// A room is a folder with everything below it, except rooms inside it.
type room struct {
	name    string
	imports []string // the other rooms that it may import; "*" is all
	libs    []string // the modules that it may import besides the standard library; "*" is all
	why     string
}

const (
	sys   = "golang.org/x/sys"
	nvgpu = "gvisor.dev/gvisor/pkg/abi/nvgpu"
	scale = "tests/scale"

	deviceWhy = "a virtual GPU declares the card that it needs; one that reached the card itself could bypass the checks"
)

var rooms = []room{
	{"cmd", []string{
		"devmodel", "devmodel/gf100", "devmodel/gh100", "aggregator", "aggregator/sched", "aggregator/aperture", "aggregator/card", "aggregator/driver", "aggregator/face", "aggregator/fault", "aggregator/gate", "aggregator/trace",
		"aggregator/card/soft", "aggregator/card/soft/sm", "aggregator/card/rm", "aggregator/card/rm/worker", "aggregator/card/rm/nvrm", "aggregator/sandbox",
		"aggregator/passthrough", "vfiouser", "mmio", "shadowpt", "firmware", "cmd/lab", "devmodel/guest",
	}, []string{"*"}, "cmd joins the parts and ships no tests; umbra bench boots guests and drives a GPU itself"},
	{"cmd/lab", nil, []string{sys, "github.com/therootcompany/xz", "github.com/klauspost/compress"}, "the lab boots a machine on a socket of any server"},
	{"devmodel", []string{"mmio"}, nil, "what all virtual GPUs share knows no chip"},
	{"devmodel/gf100", []string{"devmodel", "mmio", "firmware"}, nil, deviceWhy},
	{"devmodel/gh100", []string{"devmodel", "mmio"}, nil, deviceWhy},
	{"devmodel/guest", []string{"vfiouser", "mmio", "shadowpt"}, []string{sys, "pgregory.net/rapid"}, "the driver of a guest depends on registers, not on the server"},
	{"aggregator", []string{
		"aggregator/aperture", "aggregator/card", "aggregator/channels", "aggregator/dma", "aggregator/fault", "aggregator/gate",
		"aggregator/memory", "aggregator/report", "aggregator/sched", "aggregator/shadow", "aggregator/trace", "aggregator/vram", "aggregator/window", "shadowpt",
	}, []string{sys}, "the aggregator drives every card through package card, and knows neither sockets nor configuration"},
	{"aggregator/driver", []string{"aggregator/aperture", "aggregator/card", "aggregator/driver/structs", "aggregator/vram", "shadowpt", "mmio"}, nil, "a driver knows registers, not guests"},
	{"aggregator/driver/structs", []string{"aggregator/card", "shadowpt", "mmio"}, nil, "bytes in, descriptions out"},
	{"aggregator/gate", []string{"aggregator/card", "aggregator/fault", "aggregator/sched", "aggregator/trace", "shadowpt"}, nil, "the gate declares what it needs of guests"},
	{"aggregator/channels", []string{"aggregator/card", "aggregator/gate", "aggregator/memory", "aggregator/shadow", "aggregator/trace", "shadowpt"}, nil,
		"a guest's channels declare what they need of the guest and of its face"},
	{"aggregator/face", []string{
		"aggregator/card", "aggregator/channels", "aggregator/driver/structs", "aggregator/memory", "aggregator/report", "aggregator/shadow",
		"aggregator/window", "devmodel/gf100", "devmodel/gh100", "shadowpt", "mmio",
	}, nil, "a face declares what it needs of the guest that it shows"},
	{"aggregator/shadow", []string{"aggregator/card", "shadowpt"}, nil, "shadows know tables, not who changed them"},
	{"aggregator/window", []string{"aggregator/aperture", "aggregator/card", "aggregator/memory", "shadowpt"}, nil, "views of memory know no channels"},
	{"aggregator/memory", []string{"aggregator/card", "aggregator/dma", "aggregator/vram", "shadowpt"}, nil, "memory knows addresses, not their use"},
	{"aggregator/report", []string{"aggregator/card", "aggregator/fault"}, nil, "reports know the receiver that they declare"},
	{"aggregator/fault", nil, nil, "a panic is a value"},
	{"aggregator/trace", nil, nil, "events are numbers, not what they mean"},
	{"aggregator/vram", []string{"aggregator/card", "shadowpt"}, nil, "an allocator knows sizes, not their use"},
	{"aggregator/dma", []string{"aggregator/card"}, nil, "windows of bus addresses know no tables"},
	{"aggregator/sched", nil, nil, "the scheduler is pure code on an injected clock"},
	{"aggregator/aperture", []string{"aggregator/card", "shadowpt"}, []string{sys}, "tests give it memory, not a GPU"},
	{"aggregator/passthrough", []string{"aggregator/aperture", "aggregator/card", "aggregator/driver/structs", "shadowpt", "mmio"}, nil, "pass-through serves every card with a PCI function"},
	{"aggregator/card", []string{"shadowpt", "mmio"}, nil, "the contract between cards and their users knows neither side"},
	{"aggregator/card/soft", []string{"aggregator/card", "aggregator/card/soft/sm", "aggregator/fault", "aggregator/sandbox", "mmio", "shadowpt", "firmware"}, []string{sys},
		"a card does not depend on its users, and knows no windows that a client maps"},
	{"aggregator/card/soft/sm", nil, nil, "programs know memory and units, not methods or channels"},
	{"aggregator/card/rm", []string{"aggregator/card", "aggregator/card/rm/worker", "aggregator/card/rm/nvrm", "aggregator/fault", "shadowpt"}, []string{sys},
		"a card of the host's driver reaches it through processes only"},
	{"aggregator/card/rm/worker", []string{"aggregator/card/rm/nvrm", "aggregator/sandbox"}, []string{sys}, "a process knows calls of the driver, not guests"},
	{"aggregator/sandbox", nil, []string{sys}, "what confines a process knows nothing of its work"},
	{"aggregator/card/rm/nvrm", nil, []string{sys, nvgpu}, "calls of the driver, and structures that a public module has"},
	{"aggregator/card/rm/fakerm", []string{"aggregator/card/rm/nvrm"}, []string{sys, nvgpu}, "a driver for tests knows its calls alone"},
	{"vfiouser", nil, []string{sys}, "the protocol serves any device, so it knows none"},
	{"mmio", nil, nil, "registers are data that everything above reads"},
	{"shadowpt", nil, nil, "page tables are bytes in, bytes out"},
	{"firmware", nil, nil, "images are bytes in, bytes out"},
	{"tests", []string{"*"}, []string{"*"}, ""},
	{"tools", nil, nil, "a module of its own"},
	{"dra", []string{"cmd", "vfiouser"}, []string{"*"}, "a module of its own, which reaches servers by the control API; its tests attach as clients"},
	{scale, nil, nil, ""},
	{"tests/fakecard", []string{"aggregator/card", "mmio"}, nil, "a card for tests of drivers knows no driver"},
	{"tests/smtest", []string{"aggregator/card/soft/sm"}, nil, "tests of executors use it, so it knows none"},
}

// layers are the rooms of the aggregator, from the top. A room imports only those of lower layers.
var layers = [][]string{
	{"aggregator"},
	{"aggregator/face"},
	{"aggregator/channels", "aggregator/window"},
	{"aggregator/gate", "aggregator/shadow", "aggregator/memory", "aggregator/driver", "aggregator/passthrough", "aggregator/card/soft", "aggregator/card/rm"},
	{"aggregator/card/rm/worker", "aggregator/card/rm/fakerm"},
	{"aggregator/card/rm/nvrm"},
	{"aggregator/aperture", "aggregator/dma", "aggregator/vram", "aggregator/report", "aggregator/card/soft/sm"},
	{"aggregator/driver/structs"},
	{"aggregator/card", "aggregator/fault", "aggregator/sched", "aggregator/sandbox", "aggregator/trace"},
}

// chips are the packages of one chip, and chipRooms the rooms of the aggregator that may import them: the
// faces that guests see, of which passthrough is one, and what drives or is a card of the chip.
var (
	chips     = []string{"mmio/gf100", "mmio/gh100", "aggregator/driver/structs"}
	chipRooms = []string{"aggregator/face", "aggregator/passthrough", "aggregator/driver", "aggregator/driver/structs", "aggregator/card/soft", "aggregator/card/rm"}
)

// formats are the names of package shadowpt that are one chip's, for the same rooms.
var formats = regexp.MustCompile(`\bshadowpt\.(Fermi|Hopper|Walk|VASize|VABits|DirSize|DirSpan|DecodePTE)\b`)

// testLibs may be imported by _test.go files everywhere.
var testLibs = []string{sys, "github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/rogpeppe/go-internal"}

// A source is the part of a Go file that the rules check.
type source struct {
	path    string // from the root of the repository
	doc     string
	imports []string
	format  string // the first of formats that it names
}

func (f *source) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// importFindings names the imports of a file that the rules forbid.
func importFindings(f source) (out []string) {
	from := roomOf(path.Dir(f.path))
	if from == nil {
		return []string{f.path + " is in no room of tests/arch/rules.go"}
	}
	imports, libs := from.imports, from.libs
	if f.test() {
		imports, libs = slices.Concat(imports, []string{scale, "mmio", "shadowpt", "devmodel", "devmodel/gf100", "devmodel/gh100", "devmodel/guest", "aggregator/card/soft", "aggregator/card/rm/fakerm", "aggregator/driver", "aggregator/driver/structs", "aggregator/face", "tests/fakecard", "tests/smtest"}), slices.Concat(libs, testLibs)
		if under(from.name, "tests") || from.name == "devmodel/guest" {
			imports = []string{"*"}
		}
	}
	chip := slices.Contains(chipRooms, from.name) || !under(f.path, "aggregator") && from.name != "devmodel" || f.test()
	if f.format != "" && !chip {
		out = append(out, fmt.Sprintf("%s: %s must not use %s: only faces and cards know a chip", f.path, from.name, f.format))
	}
	for _, imp := range f.imports {
		local, ours := strings.CutPrefix(imp, Module+"/")
		first, _, _ := strings.Cut(imp, "/")
		switch {
		case ours:
			if slices.Contains(chips, local) && !chip {
				out = append(out, fmt.Sprintf("%s: %s must not import %s: only faces and cards know a chip", f.path, from.name, local))
			}
			if to := roomOf(local); to == nil {
				out = append(out, fmt.Sprintf("%s imports %s, which is in no room of tests/arch/rules.go", f.path, local))
			} else if to != from && !slices.Contains(imports, to.name) && !slices.Contains(imports, "*") {
				out = append(out, fmt.Sprintf("%s: %s must not import %s: %s", f.path, from.name, to.name, from.why))
			}
		case !strings.Contains(first, "."): // the standard library
		case !slices.ContainsFunc(libs, func(lib string) bool { return lib == "*" || under(imp, lib) }):
			out = append(out, fmt.Sprintf("%s imports %s: %s may import only the standard library and %v", f.path, imp, from.name, libs))
		}
	}
	return out
}

// unsafeFindings reports unsafe outside of files that say so in their name, and cgo.
func unsafeFindings(f source) (out []string) {
	if under(f.path, "tests") || f.test() {
		return nil
	}
	if slices.Contains(f.imports, "unsafe") && !strings.HasSuffix(f.path, "_unsafe.go") {
		out = append(out, f.path+" imports unsafe: only files named *_unsafe.go may")
	}
	if slices.Contains(f.imports, "C") && !under(f.path, "vfiouser/libvfiouser") {
		out = append(out, f.path+" imports C: only vfiouser/libvfiouser may")
	}
	return out
}

// docFindings reports packages that do not have exactly one doc comment.
func docFindings(files []source) (out []string) {
	docs := make(map[string]int)
	for _, f := range files {
		if f.test() || strings.Contains(f.path, "/testdata/") {
			continue
		}
		n := docs[path.Dir(f.path)]
		if f.doc != "" {
			n++
		}
		docs[path.Dir(f.path)] = n
	}
	for dir, n := range docs {
		if n != 1 {
			out = append(out, fmt.Sprintf("%s: the package has %d doc comments, want 1", dir, n))
		}
	}
	return out
}

// roomOf returns the innermost room of a package, nil if it is in none.
func roomOf(pkg string) (best *room) {
	for i := range rooms {
		if r := &rooms[i]; under(pkg, r.name) && (best == nil || len(r.name) > len(best.name)) {
			best = r
		}
	}
	return best
}

// under reports whether a path is dir or below it.
func under(p, dir string) bool {
	rest, ok := strings.CutPrefix(p, dir)
	return ok && (rest == "" || rest[0] == '/')
}
