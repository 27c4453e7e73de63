package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/umbra-gpu/umbra/cmd/metrics"
)

// explained is a column of a table, and the number of the registry that it shows.
type explained struct{ column, in, key string }

// Columns of umbra status.
var (
	statusWords = []explained{
		{"traps", "GPUReport", "traps"}, {"interrupts", "GPUReport", "interrupts"}, {"faults", "GPUReport", "faults"}, {"rules broken", "GPUReport", "rules_broken"},
	}
	ledgerWords = []explained{
		{"busy", "EngineAccount", "busy_ns"}, {"waited", "EngineAccount", "wait_ns"}, {"requests", "EngineAccount", "requests"}, {"held", "EngineAccount", "held"}, {"runaways", "Counts", "runaways"},
	}
)

// legendWidth fits an old terminal.
const legendWidth = 80

// legend explains columns with the first part of each number's help text, and adds a note.
func legend(words []explained, note string) string {
	helps := metrics.Helps()
	parts := []string{"client: its process"}
	for _, w := range words {
		help := helps[w.in+"."+w.key]
		if end := strings.IndexAny(help, ";:,"); end >= 0 {
			help = help[:end]
		}
		first := []rune(strings.TrimSuffix(help, "."))
		if len(first) > 1 && unicode.IsLower(first[1]) {
			first[0] = unicode.ToLower(first[0])
		}
		parts = append(parts, w.column+": "+string(first))
	}
	if note != "" {
		parts = append(parts, note)
	}
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(strings.Join(parts, "; ")) {
		switch {
		case at == 0:
			b.WriteString("  ")
			at = 2
		case at+1+len(word) > legendWidth:
			b.WriteString("\n  ")
			at = 2
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String() + "\n"
}

// clientText is the process of a client, or whether there is one if the process is not known.
func clientText(attached bool, pid int) string {
	switch {
	case pid > 0:
		return fmt.Sprint(pid)
	case attached:
		return "attached"
	}
	return "-"
}

// clip shortens a user's name, so that a row fits.
func clip(name string) string {
	const most = 8
	if len(name) > most {
		return name[:most-1] + "+"
	}
	return name
}
