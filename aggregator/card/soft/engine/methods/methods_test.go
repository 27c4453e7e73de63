package methods

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	rows, err := Parse("# source\n0204 SET_SRC_BLOCK_SIZE 00000fff\n3800 CALL_MME_MACRO ffffffff 8 128\n3804 CALL_MME_DATA ffffffff 8 128\n")
	require.NoError(t, err)
	require.Equal(t, []Row{
		{Offset: 0x204, Name: "SET_SRC_BLOCK_SIZE", Mask: 0xfff, Count: 1},
		{Offset: 0x3800, Name: "CALL_MME_MACRO", Mask: 0xffffffff, Stride: 8, Count: 128},
		{Offset: 0x3804, Name: "CALL_MME_DATA", Mask: 0xffffffff, Stride: 8, Count: 128},
	}, rows)
}

// TestBadRows: no mistake of a table passes, and the error names the line.
func TestBadRows(t *testing.T) {
	for _, row := range []string{
		"", "0204 NAME", "0204 NAME fff 8", "0204 NAME fff 8 2 2",
		"0x204 NAME fff", "0202 NAME fff", "0100 NAME fff", "00fc NAME fff",
		"0204 Name fff", "0204 NAME 0", "0204 NAME 100000000", "0204 NAME fff 0 2", "0204 NAME fff 6 2", "0204 NAME fff 8 1", "0204 NAME fff 8 x",
	} {
		_, err := Parse("# source\n0100 NO_OPERATION ffffffff\n" + row + "\n")
		require.ErrorContains(t, err, "line 3", row)
	}
}
