package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/simulate"
)

var (
	codeBlock  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	codeInline = regexp.MustCompile("`((?:bin/)?umbra [a-z][^`]*)`")
)

// unfinished matches errors of a command line without all its arguments.
var unfinished = regexp.MustCompile(`^expected |: missing value|got "EOL"`)

// pages are the documents by name.
func pages(t *testing.T) map[string]string {
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	out := make(map[string]string)
	for _, name := range append(names, "../../README.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		out[filepath.Base(name)] = string(text)
	}
	return out
}

// TestExamplesAreAccepted: the commands accept every file that a document shows, and that of the package.
func TestExamplesAreAccepted(t *testing.T) {
	files, mixes := 0, 0
	for page, text := range pages(t) {
		for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
			if block[1] != "yaml" {
				continue
			}
			if strings.Contains(block[2], "\nguests:") {
				name := filepath.Join(t.TempDir(), "mix.yaml")
				require.NoError(t, os.WriteFile(name, []byte(block[2]), 0o600))
				_, err := (&simulate.Options{Mix: name}).Plan()
				require.NoError(t, err, "%s:\n%s", page, block[2])
				mixes++
				continue
			}
			c := config.Default()
			require.NoError(t, c.Parse(page, []byte(block[2])), "%s", block[2])
			require.NoError(t, c.Check(), "%s", block[2])
			files++
		}
	}
	example := config.Default()
	require.NoError(t, example.ReadFile("../../contrib/umbra.yaml"))
	require.NoError(t, example.Check())
	require.NotZero(t, files)
	require.NotZero(t, mixes)
}

// TestCommandsInDocuments: every command line in a document exists with its flags, and serve
// accepts its options.
func TestCommandsInDocuments(t *testing.T) {
	lines := 0
	for page, text := range pages(t) {
		for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
			for l := range strings.Lines(block[2]) {
				l = strings.TrimSpace(l)
				if command, ok := strings.CutPrefix(strings.TrimPrefix(l, "bin/"), "umbra "); ok {
					require.NoError(t, parseLine(command), "%s: %s", page, l)
					lines++
				}
			}
		}
		for _, code := range codeInline.FindAllStringSubmatch(text, -1) {
			command := strings.TrimPrefix(strings.TrimPrefix(code[1], "bin/"), "umbra ")
			// Text may name a command without its arguments.
			if err := parseLine(command); err != nil && !unfinished.MatchString(err.Error()) {
				require.NoError(t, err, "%s: %s", page, code[1])
			}
			lines++
		}
	}
	units, err := filepath.Glob("../../contrib/systemd/*.service")
	require.NoError(t, err)
	require.NotEmpty(t, units)
	for _, name := range units {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/umbra (.*)$`).FindStringSubmatch(string(text))
		require.NotNil(t, start, name)
		require.NoError(t, parseLine(start[1]), name)
	}
	require.Greater(t, lines, 50)
	require.Error(t, parseLine("serve --sokcet a.sock"))
	require.Error(t, parseLine("serve --gpu name=a,socket=a.sock,vrma=1GiB"))
	require.Error(t, parseLine("sreve"))
}

// parseLine parses a command line without running it.
func parseLine(text string) error {
	text, _, _ = strings.Cut(text, " #")
	text, _, _ = strings.Cut(text, " > ")
	text = strings.NewReplacer("[", "", "]", "").Replace(text)
	parsed, err := newParser(context.Background(), io.Discard, io.Discard, func(int) {}).Parse(strings.Fields(text))
	if err != nil {
		return err
	}
	if s, ok := parsed.Selected().Target.Addr().Interface().(*serveCmd); ok && s.File == "" && (len(s.GPU) > 0 || s.Socket != "" || s.Control != "") {
		_, err = s.options(parsed, nil)
	}
	return err
}
