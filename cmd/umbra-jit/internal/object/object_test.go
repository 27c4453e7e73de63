package object_test

import (
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/object"
)

// A function that reads a constant of its own runs from where it is placed.
func TestLoadedFunctionRuns(t *testing.T) {
	c := jittest.Compiler(t)
	data, err := c.Compile(`
@table = internal constant [4 x i64] [i64 3, i64 5, i64 7, i64 11]
define i64 @pick(i64 %n) {
  %at = getelementptr i64, ptr @table, i64 %n
  %v = load i64, ptr %at
  ret i64 %v
}`, llvm.Full)
	require.NoError(t, err)
	code, err := object.Load(data)
	require.NoError(t, err)
	defer code.Unload()
	at, err := code.Symbol("pick")
	require.NoError(t, err)
	got, _, _ := purego.SyscallN(at, 2)
	require.EqualValues(t, 7, got)
	_, err = code.Symbol("other")
	require.EqualError(t, err, `the code has no function "other"`)
}

// Code that needs a library is refused by the name of what it lacks.
func TestUndefinedSymbolIsNamed(t *testing.T) {
	c := jittest.Compiler(t)
	data, err := c.Compile("declare void @elsewhere()\ndefine void @f() {\n call void @elsewhere()\n ret void\n}", llvm.Full)
	require.NoError(t, err)
	_, err = object.Load(data)
	require.ErrorContains(t, err, `the code refers to "elsewhere"`)
	_, err = c.Compile("define void @f() {\n ret i32 1\n}", llvm.Full)
	require.ErrorContains(t, err, "the IR is not valid")
	_, err = object.Load([]byte("no object"))
	require.Error(t, err)
}
