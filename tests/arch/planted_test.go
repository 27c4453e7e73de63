package arch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// planted is a file with the given imports.
func planted(t *testing.T, name, src string) []sourceFile {
	t.Helper()
	f, err := parse(name, []byte(src))
	require.NoError(t, err)
	return []sourceFile{f}
}

func TestPlantedImports(t *testing.T) {
	own := func(path string) string { return `import _ "` + Module + "/" + path + `"` }
	lib := func(path string) string { return `import _ "` + path + `"` }
	for _, c := range []struct {
		name, file, imports string
		want                string // part of the finding; "" for none
	}{
		{"vfiouser knows no device", "vfiouser/x.go", own("devmodel"), "vfiouser must not import devmodel"},
		{"vfiouser knows no registers", "vfiouser/client/x.go", own("mmio/gf100"), "vfiouser must not import mmio"},
		{"mmio imports nothing of ours", "mmio/gf100/x.go", own("shadowpt"), "mmio must not import shadowpt"},
		{"mmio/gf100 imports mmio", "mmio/gf100/x.go", own("mmio"), ""},
		{"firmware imports nothing of ours", "firmware/x.go", own("mmio"), "firmware must not import mmio"},
		{"devmodel knows no socket", "devmodel/x.go", own("vfiouser"), "tested without a socket"},
		{"devmodel has no card", "devmodel/x.go", own("aggregator/card/soft"), "bypass the checks"},
		{"the aggregator has no favourite card", "aggregator/x.go", own("aggregator/card/soft"), "side door"},
		{"the aggregator drives cards", "aggregator/x.go", own("aggregator/card"), ""},
		{"a card's engines belong to it", "aggregator/card/soft/x.go", own("aggregator/card/soft/engine"), ""},
		{"a card does not know its user", "aggregator/card/soft/engine/x.go", own("aggregator"), "who uses it"},
		{"the scheduler is pure", "aggregator/sched/x.go", own("mmio"), "untestable time"},
		{"nobody imports cmd", "vfiouser/x.go", own("cmd/serve"), "cmd joins the parts"},
		{"nobody imports tests", "cmd/umbra/x.go", own("tests/stand"), "must not contain what tests it"},
		{"nor do tests of the core", "vfiouser/x_test.go", own("tests/stand"), "must not contain what tests it"},
		{"cmd boots machines", "cmd/bench/x.go", own("tests/lab"), ""},
		{"nobody else does", "devmodel/x_test.go", own("tests/lab/proto"), "machines are for tests"},
		{"cmd drives a GPU itself", "cmd/bench/x.go", own("tests/guest"), ""},
		{"the core does not", "aggregator/x_test.go", own("tests/guest"), "a driver in the process is for tests"},
		{"a driver knows no card", "tests/guest/x.go", own("aggregator/card/soft"), "what is behind the socket"},
		{"its tests know one", "tests/guest/x_test.go", own("aggregator/card/soft"), ""},
		{"the lab knows no server", "tests/lab/x.go", own("vfiouser"), "whatever serves it"},
		{"cmd imports all", "cmd/serve/x.go", own("vfiouser"), ""},
		{"tests import all", "tests/e2e/x_test.go", own("cmd/serve"), ""},
		{"a new room is entered in the table", "newroom/x.go", own("mmio"), "no such room"},
		{"a room that only begins alike", "cmdline/x.go", own("mmio"), "no such room"},

		{"the standard library", "mmio/x.go", lib("encoding/binary"), ""},
		{"x/sys", "vfiouser/x.go", lib("golang.org/x/sys/unix"), ""},
		{"not x/sys in pure packages", "firmware/x.go", lib("golang.org/x/sys/unix"), "standard library and x/sys alone"},
		{"no other library in core", "mmio/x.go", lib("github.com/google/btree"), "standard library and x/sys alone"},
		{"a library that only begins alike", "vfiouser/x.go", lib("golang.org/x/systems"), "standard library and x/sys alone"},
		{"test libraries in tests", "mmio/x_test.go", lib("github.com/stretchr/testify/require"), ""},
		{"test libraries nowhere else", "mmio/x.go", lib("github.com/stretchr/testify/require"), "standard library and x/sys alone"},
		{"CLI libraries in cmd", "cmd/umbra/x.go", lib("github.com/alecthomas/kong"), ""},
		{"CLI libraries nowhere else", "aggregator/x.go", lib("github.com/alecthomas/kong"), "standard library and x/sys alone"},
		{"tests are free", "tests/bench/x.go", lib("github.com/alecthomas/kong"), ""},
		{"the lab reads packages", "tests/lab/x.go", lib("github.com/ulikunitz/xz"), ""},
		{"the lab is shipped", "tests/lab/x.go", lib("github.com/alecthomas/kong"), "standard library and x/sys alone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := importFindings(planted(t, c.file, "package x\n"+c.imports+"\n"))
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.want)
			require.Contains(t, got[0], c.file)
		})
	}
}

func TestPlantedBuildConstraintDoesNotHide(t *testing.T) {
	src := "//go:build never\n\npackage x\nimport _ \"" + Module + "/devmodel\"\n"
	require.Len(t, importFindings(planted(t, "vfiouser/x_plan9.go", src)), 1)
}

func TestPlantedUnsafe(t *testing.T) {
	const src = "package x\nimport _ \"unsafe\"\n"
	require.Len(t, unsafeFindings(planted(t, "vfiouser/sock.go", src)), 1)
	require.Len(t, unsafeFindings(planted(t, "vfiouser/sock_unsafe_linux.go", src)), 1)
	require.Empty(t, unsafeFindings(planted(t, "vfiouser/sock_unsafe.go", src)))
	require.Empty(t, unsafeFindings(planted(t, "tests/guests/drm/ioctl.go", src)))
	require.Len(t, unsafeFindings(planted(t, "mmio/x.go", "package x\nimport \"C\"\n")), 1)
}

func TestPlantedPackages(t *testing.T) {
	doc := planted(t, "mmio/doc.go", "// Package mmio is.\npackage mmio\n")
	bare := planted(t, "mmio/x.go", "package mmio\n")
	again := planted(t, "mmio/y.go", "// Package mmio is, once more.\npackage mmio\n")
	notice := planted(t, "mmio/z.go", "// A notice, apart from the package clause.\n\npackage mmio\n")

	require.Empty(t, packageFindings(append(doc, bare...)))
	require.Contains(t, packageFindings(bare)[0], "no doc comment")
	require.Contains(t, packageFindings(notice)[0], "no doc comment")
	require.Contains(t, packageFindings(append(doc, again...))[0], "2 doc comments")
	for _, name := range []string{"mmio/util.go", "mmio/helpers_test.go", "mmio/common/x.go"} {
		pkg := "mmio"
		if name == "mmio/common/x.go" {
			pkg = "common"
		}
		got := packageFindings(planted(t, name, "// Package x is.\npackage "+pkg+"\n"))
		require.Len(t, got, 1, name)
		require.Contains(t, got[0], "says nothing")
	}
}

func TestPlantedText(t *testing.T) {
	for _, bad := range []string{
		"see " + "/wo" + "rk/main/x", "\"" + "/ro" + "ot/.cache\"", "cd " + "/ho" + "me/me", "socket: " + "/t" + "mp/umbra.sock",
		"http://deb." + "debian.org/debian", "GOPROXY=https://proxy." + "golang.org", "https://REGISTRY." + "npmjs.org/x",
	} {
		got := textFindings("README.md", []byte("fine\n"+bad+"\n"))
		require.Len(t, got, 1, bad)
		require.Contains(t, got[0], "README.md:2: ")
	}
	for _, good := range []string{
		"tests/work/x", "homework/", "the root/ of a tree", "a/t" + "mp/x", "~/t" + "mp/x", "http://HOST/debian", "/dev/shm/x", "/run/umbra/card0.sock",
	} {
		require.Empty(t, textFindings("README.md", []byte(good)), good)
	}
	require.Empty(t, textFindings("x.bin", []byte("\x00"+"/wo"+"rk/x")))
}

func TestPlantedLinks(t *testing.T) {
	exists := func(name string) bool { return name == "docs/ARCHITECTURE.md" }
	const text = "[a](ARCHITECTURE.md#here) [b](NOWHERE.md) [c](https://example.org) [d](#below)"
	require.Equal(t, []string{"docs/INDEX.md: the link to NOWHERE.md leads nowhere"}, linkFindings("docs/INDEX.md", []byte(text), exists))
}

func TestPlantedStaleness(t *testing.T) {
	const text = "`TestReal` `TestGone` `a/real.go` `a/gone.go` `pfifo.go` `make lint` `make gone` `Test` and make it so\nmake lost # x\n"
	require.Equal(t, []string{
		"x.md: there is no test TestGone", "x.md: there is no file a/gone.go",
		"x.md: there is no make target gone", "x.md: there is no make target lost",
	}, staleFindings("x.md", []byte(text), []string{"TestReal"}, []string{"a/real.go"}, []string{"lint"}))
}
