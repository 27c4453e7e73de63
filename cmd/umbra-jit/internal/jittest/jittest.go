// Package jittest gives tests a compiler. The package runs no goroutines.
package jittest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
)

// functions loads libLLVM once: a process cannot unload it.
var functions = sync.OnceValues(func() (*llvm.Functions, error) {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	found, err := (&fetch.Cache{Dir: dir}).LLVM(ctx)
	if err != nil {
		return nil, err
	}
	return llvm.Load(found.File, found.Dir)
})

// Compiler returns a compiler, or skips the test if libLLVM cannot be had.
func Compiler(t testing.TB) *llvm.Compiler {
	return compiler(t, (*llvm.Functions).NewCompiler)
}

// PTXCompiler is Compiler for a GPU.
func PTXCompiler(t testing.TB) *llvm.Compiler {
	return compiler(t, (*llvm.Functions).NewPTXCompiler)
}

func compiler(t testing.TB, of func(*llvm.Functions) (*llvm.Compiler, error)) *llvm.Compiler {
	l, err := functions()
	if err != nil {
		t.Skip("no libLLVM 19:", err)
	}
	c, err := of(l)
	require.NoError(t, err)
	return c
}
