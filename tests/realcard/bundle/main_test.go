package main

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStub(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(stub()))
	require.NoError(t, err)
	for _, name := range []string{".fwimage", ".fwsignature_gh100"} {
		require.NotNil(t, f.Section(name), name)
		data, err := f.Section(name).Data()
		require.NoError(t, err)
		require.Len(t, data, 4096)
	}
}
