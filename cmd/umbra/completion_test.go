package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompletionReference: contrib/completion/umbra.bash is generated from the commands, and completes their words and
// flags, and the names of GPUs.
func TestCompletionReference(t *testing.T) {
	var paths, cases []string
	for _, n := range commandsOf(modelOf(t)) {
		paths = append(paths, fmt.Sprintf("%q", n.FullPath()))
		words := []string{"--help"}
		for _, c := range n.Children {
			if !c.Hidden {
				words = append(words, c.Name)
			}
		}
		for _, f := range n.Flags {
			if !f.Hidden && f.Name != "help" {
				words = append(words, "--"+f.Name)
			}
		}
		names := ""
		if len(n.Positional) > 0 && n.Positional[0].Name == "name" && n.Parent.Name == "gpu" {
			names = " $(umbra gpu list 2>/dev/null | awk 'NR > 1 { print $1 }')"
		}
		cases = append(cases, fmt.Sprintf("\t%q) words=%q ;;\n", n.FullPath(), strings.Join(words, " ")+names))
	}
	generated(t, "../contrib/completion/umbra.bash", `# Completion of umbra's commands for bash. Generated; make reference writes it.
_umbra() {
	local at=umbra word words
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$at $word" in
		`+strings.Join(paths[1:], " | ")+`) at="$at $word" ;;
		esac
	done
	case $at in
`+strings.Join(cases, "")+`	esac
	COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _umbra umbra
`)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	for line, want := range map[string]string{"umbra gpu at": "attach", "umbra sc": "sched", "umbra serve --vr": "--vram", "umbra gpu attach a --for": "--format", "umbra lab run x": ""} {
		out, err := exec.Command("bash", "-c", `source ../../contrib/completion/umbra.bash && COMP_WORDS=(`+line+`) && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _umbra; echo "${COMPREPLY[@]}"`).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, want, strings.TrimSpace(string(out)), line)
	}
}
