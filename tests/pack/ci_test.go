package pack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestJobsOfTheDocuments: docs/ci.md has the files of contrib/ci, whose commands are the same.
func TestJobsOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile("../../docs/ci.md")
	require.NoError(t, err)
	for _, name := range []string{"gitlab-ci.yml", "github-workflow.yml"} {
		text, err := os.ReadFile(filepath.Join("../../contrib/ci", name))
		require.NoError(t, err)
		require.Contains(t, string(page), "```yml\n"+string(text)+"```\n", name)
	}
	gitlab, github := jobs(t)
	require.Equal(t, gitlab, github)
}

// jobs are the commands of both files.
func jobs(t *testing.T) (gitlab, github []string) {
	var a struct{ GPU struct{ Script []string } }
	var b struct {
		Jobs struct {
			GPU struct{ Steps []struct{ Run string } }
		}
	}
	for name, into := range map[string]any{"gitlab-ci.yml": &a, "github-workflow.yml": &b} {
		text, err := os.ReadFile(filepath.Join("../../contrib/ci", name))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, into), name)
	}
	for _, step := range b.Jobs.GPU.Steps {
		if step.Run != "" {
			github = strings.Split(strings.TrimSpace(step.Run), "\n")
		}
	}
	return a.GPU.Script, github
}

// TestJobRuns: the commands of the job succeed, but that the source is this one and the cache stays.
func TestJobRuns(t *testing.T) {
	scale.ReleaseOnly(t)
	here, err := filepath.Abs("../..")
	require.NoError(t, err)
	if exec.Command("git", "-C", here, "rev-parse", "HEAD").Run() != nil {
		t.Skip("needs the history, to clone it")
	}
	script, _ := jobs(t)
	job := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", strings.Join(script, "\n"))
	job.Dir = t.TempDir()
	job.Env = append(os.Environ(), "UMBRA=file://"+here)
	out, err := job.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "umbra: ", "what the server saw")
	require.FileExists(t, filepath.Join(job.Dir, "console", "console.log"))
}
