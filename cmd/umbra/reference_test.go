package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
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

- virtual: the guest reads and writes its own state.
- translate: the value is checked and translated before it reaches the card.
- refuse: the guest may read it; its writes are counted and have no effect.
- Offsets that are not listed are storage of the guest's own, which never reaches the card.

| offset | register | count | access | policy | effect |
|---|---|---|---|---|---|
`)
	for _, r := range table.Rows {
		effect := r.Effect
		if r.Stub {
			effect = strings.TrimPrefix(effect+"; stub", "; ")
		}
		fmt.Fprintf(&b, "| %06x | %s | %d | %s | %s | %s |\n", r.Offset, r.Register, r.Instances, r.Access, r.Policy, strings.ReplaceAll(effect, "|", `\|`))
	}
	const page = "../../docs/reference/registers.md"
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "go test ./cmd/umbra -run TestRegisterReference -update writes it")
}

// TestCountersAreDocumented: docs/counters.md has a row for every counter of a guest.
func TestCountersAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/counters.md")
	require.NoError(t, err)
	for _, c := range new(aggregator.GuestStats).Counts() {
		require.Contains(t, string(page), "\n| `"+c.Name+"` |", c.Name)
	}
}
