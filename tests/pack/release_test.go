package pack

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/scale"
)

// repository makes a repository with files, and returns what runs in it.
func repository(t *testing.T, dir string, files map[string]string) (git func(args ...string) string, release func(args ...string) (string, error)) {
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	git = func(args ...string) string {
		t.Helper()
		out, err := run("git", args...)
		require.NoError(t, err, out)
		return out
	}
	git("init", "-q")
	for name, text := range files {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o755))
	}
	git("add", "-A")
	git("commit", "-q", "-m", "all: begin")
	return git, func(args ...string) (string, error) { return run("tools/release", args...) }
}

// TestReleaseRefuses: a release that is not ready is refused before anything is built, and leaves no tag.
func TestReleaseRefuses(t *testing.T) {
	script, err := os.ReadFile("../../tools/release")
	require.NoError(t, err)
	dir := t.TempDir()
	git, release := repository(t, dir, map[string]string{
		"tools/release": string(script), "Makefile": "deb:\n\t@echo building; exit 1\n",
		"CHANGELOG.md": "# Changelog\n## [Unreleased]\n## [0.3.0] - soon\n- x\n## [0.2.0] - 2026-11-27\n### Added\n- x\n## [0.1.0] - 2026-11-26\n\n## [0.0.1] - 2026-11-25\n- x\n",
	})
	git("tag", "v0.0.1")
	for version, want := range map[string]string{
		"": `version "": want three numbers`, "v0.2.0": `version "v0.2.0": want three numbers`, "0.2": "want three numbers", "0.02.0": "want three numbers",
		"0.0.1": "the tag v0.0.1 is there already", "0.1.0": "the section of 0.1.0 lists nothing", "0.3.0": `no line "## [0.3.0] - 20`, "0.4.0": `CHANGELOG.md has no line "## [0.4.0] - 20`,
		"0.2.0": "building",
	} {
		out, err := release(version)
		require.Error(t, err, version)
		require.Contains(t, out, want, version)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o644))
	out, err := release("0.2.0")
	require.Error(t, err)
	require.Contains(t, out, "the tree has changes; commit or remove them first:\n?? new")
	require.Equal(t, "v0.0.1\n", git("tag"))
}

// TestRelease: the sources with a section for a version make its package, its tar file and its tag.
func TestRelease(t *testing.T) {
	scale.ReleaseOnly(t)
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("needs dpkg-deb: apt-get install dpkg")
	}
	dir := filepath.Join(t.TempDir(), "umbra")
	output(t, "bash", "-c", `cd ../.. && mkdir "$0" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$0"`, dir)
	git, release := repository(t, dir, map[string]string{"CHANGELOG.md": "# Changelog\n## [7.8.9] - 2026-11-27\n### Added\n- A dog.\n"})
	out, err := release("7.8.9")
	require.NoError(t, err, out)
	require.Contains(t, git("tag", "-l", "--format=%(contents)", "v7.8.9"), "Umbra 7.8.9\n\n### Added\n- A dog.\n")
	require.Empty(t, git("status", "--porcelain"))
	dist := filepath.Join(dir, "dist")
	output(t, "bash", "-c", `cd "$0" && sha256sum -c SHA256SUMS && test -f umbra_7.8.9_amd64.deb`, dist)
	require.Contains(t, output(t, "tar", "-tzf", filepath.Join(dist, "umbra-7.8.9-linux-amd64.tar.gz")), "umbra-7.8.9-linux-amd64/man/umbra-serve.1\n")
}
