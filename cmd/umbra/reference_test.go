package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

var update = flag.Bool("update", false, "write the generated reference pages")

// TestRegisterReference: docs/reference/registers.md is generated from the register table.
func TestRegisterReference(t *testing.T) {
	table, err := serve.Registers()
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString(`# Registers of a virtual GPU

Every register that Umbra declares, with the policy for guests that share a card. Generated; umbra regs prints the same, with
counts of a running server.

` + registerLegend + `
| chip | offset | register | instances | access | policy | effect |
|---|---|---|---|---|---|---|
`)
	for _, r := range table.Rows {
		effect := r.Effect
		if r.Stub {
			effect = strings.TrimPrefix(effect+"; stub", "; ")
		}
		fmt.Fprintf(&b, "| %s | %06x | %s | %d | %s | %s | %s |\n", r.Chip, r.Offset, r.Register, r.Instances, r.Access, r.Policy, strings.ReplaceAll(effect, "|", `\|`))
	}
	generated(t, "reference/registers.md", b.String())
}

// generated holds a page of docs against what it is generated from, or writes it.
func generated(t *testing.T, name, text string) {
	t.Helper()
	page := filepath.Join("../../docs", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(page), 0o755))
		require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, text, string(have), "make reference writes it")
}

// commandsOf lists the commands below one, in order, with itself.
func commandsOf(n *kong.Node) (out []*kong.Node) {
	if !n.Hidden {
		out = append(out, n)
	}
	for _, c := range n.Children {
		out = append(out, commandsOf(c)...)
	}
	return out
}

// modelOf is the tree of commands.
func modelOf(t *testing.T) *kong.Node {
	return newParser(t.Context(), io.Discard, io.Discard, func(int) {}).Model.Node
}

// summary is a command line of the command.
func summary(n *kong.Node) string { return "umbra " + strings.TrimSpace(n.Summary()) }

// entriesOf lists the arguments and flags of a command as they are written, with their help, but --help.
func entriesOf(n *kong.Node) (out [][2]string) {
	for _, p := range n.Positional {
		out = append(out, [2]string{p.Summary(), p.Help})
	}
	for _, f := range n.Flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		text := "--" + f.Name
		switch {
		case f.Tag.Negatable != "":
			text = "--[no-]" + f.Name
		case !f.IsBool():
			text += " " + f.FormatPlaceHolder()
		}
		if f.Short != 0 {
			text = "-" + string(f.Short) + ", " + text
		}
		out = append(out, [2]string{text, withDefault(f.Value)})
	}
	return out
}

var cell = strings.NewReplacer("|", `\|`, "\n", " ")

// TestFlagReference: docs/reference/flags.md is generated from the commands.
func TestFlagReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Commands and flags\n\nEvery command of umbra with its flags. Generated; `umbra COMMAND --help` prints the same.\n")
	for _, n := range commandsOf(modelOf(t)) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", summary(n), n.Help)
		for i, e := range entriesOf(n) {
			if i == 0 {
				b.WriteString("\n| flag | meaning |\n|---|---|\n")
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", cell.Replace(e[0]), cell.Replace(e[1]))
		}
	}
	generated(t, "reference/flags.md", b.String())
}

// TestConfigurationReference: docs/reference/configuration.md is generated from the tags of
// package config.
func TestConfigurationReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Configuration file

The keys of the YAML file that umbra serve reads with --config. Generated. A flag overrides the file. Sizes and
times have units: 512MiB, 30ms. A list is written with commas, in braces also with brackets: [bar1, rom].
`)
	table := func(title, intro string, of any, flags bool) {
		column, rule := "", ""
		if flags {
			column, rule = " flag |", "---|"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key |%s default | accepted | live | meaning |\n|---|%s---|---|---|---|\n", title, intro, column, rule)
		for _, o := range config.Reference(of) {
			flag, live := "", ""
			if flags {
				flag = " `--" + o.Flag + "` |"
			}
			if o.Live {
				live = "yes"
			}
			fmt.Fprintf(&b, "| `%s` |%s %s | %s | %s | %s |\n", o.Key, flag, o.Default, cmp.Or(o.Accepts, o.Type), live, cell.Replace(o.Help))
		}
	}
	table("The server and the card", "Live keys can be changed by umbra sched set, there without \"scheduler.\".", new(config.Config), true)
	table("A virtual GPU", "Each element of gpus has these keys, and so have --gpu KEY=VALUE,... and umbra gpu add. An element of profiles has them without\nsocket and profile. A key that a GPU does not have comes from its profile, else from card and shadow, else from its default. Live\nkeys can be changed by umbra gpu set.", new(config.GPU), false)
	generated(t, "reference/configuration.md", b.String())
}

// TestManPages: docs/man has a page for each command of the top level, generated.
func TestManPages(t *testing.T) {
	roff := strings.NewReplacer("\\", `\e`, "-", `\-`, "\n.", "\n\\&.")
	root := modelOf(t)
	for _, top := range append([]*kong.Node{root}, root.Children...) {
		if top.Hidden {
			continue
		}
		name := strings.ReplaceAll(top.FullPath(), " ", "-")
		var b strings.Builder
		fmt.Fprintf(&b, ".TH %s 1\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), roff.Replace(name), roff.Replace(strings.TrimSuffix(top.Help, ".")))
		list := commandsOf(top)
		if top == root {
			list = list[:1]
		}
		b.WriteString(".SH SYNOPSIS\n")
		for _, n := range list {
			fmt.Fprintf(&b, ".B %s\n.br\n", roff.Replace(summary(n)))
		}
		environment := make(map[string]string)
		for _, n := range list {
			title := ".SS " + roff.Replace(n.FullPath())
			if n == top {
				title = ".SH DESCRIPTION"
			}
			fmt.Fprintf(&b, "%s\n%s\n", title, roff.Replace(n.Help))
			if more, _, _ := strings.Cut(n.Detail, "Examples:"); more != "" {
				fmt.Fprintf(&b, ".PP\n%s\n", roff.Replace(strings.TrimSpace(more)))
			}
			for k, e := range entriesOf(n) {
				if k == 0 && n == top {
					b.WriteString(".SH OPTIONS\n")
				}
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff.Replace(e[0]), roff.Replace(e[1]))
			}
			if n == top && len(list) > 1 {
				b.WriteString(".SH COMMANDS\n")
			}
			for _, f := range n.Flags {
				for _, name := range f.Envs {
					environment[name] = "Stands for \\-\\-" + roff.Replace(f.Name) + "."
				}
			}
		}
		if top == root {
			b.WriteString(".SH COMMANDS\n")
			for _, c := range root.Children {
				if !c.Hidden {
					fmt.Fprintf(&b, ".TP\n.BR umbra\\-%s (1)\n%s\n", roff.Replace(c.Name), roff.Replace(c.Help))
				}
			}
		}
		for k, line := range examples[top.FullPath()] {
			if k == 0 {
				b.WriteString(".SH EXAMPLES\n")
			}
			require.NoError(t, parseLine(strings.TrimPrefix(line, "umbra ")), line)
			line, what, _ := strings.Cut(line, " # ")
			fmt.Fprintf(&b, ".TP\n.B %s\n%s.\n", roff.Replace(line), roff.Replace(strings.ToUpper(what[:1])+what[1:]))
		}
		for k, variable := range slices.Sorted(maps.Keys(environment)) {
			if k == 0 {
				b.WriteString(".SH ENVIRONMENT\n")
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", variable, environment[variable])
		}
		b.WriteString(".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nThe operation failed, or the server's current state does not allow it.\n" +
			".TP\n.B 2\nThe command line, a variable or a file is wrong.\n")
		if top != root {
			b.WriteString(".SH SEE ALSO\n.BR umbra (1)\n")
		}
		generated(t, "man/"+name+".1", b.String())
	}
}
