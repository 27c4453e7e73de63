package engine

import (
	"bytes"
	"fmt"
	"math/bits"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/smtest"
	"github.com/umbra-gpu/umbra/tests/smtest/launches"
)

// codes are compiled programs of launches, by what they depend on.
type codes map[string]*Code

// of returns the code of a launch.
func (c codes) of(t testing.TB, compiler *llvm.Compiler, l *interp.Launch, passes string) *Code {
	o := fermi.Options(l)
	for i, n := range o.Grid {
		o.Grid[i] = 1 << bits.Len32(n-1)
	}
	key := fmt.Sprint(l.Program.Base, o)
	for pc := range uint32(16) {
		word, _ := l.Program.Word(l.Entry + 8*pc)
		key += fmt.Sprint(" ", word)
	}
	if c[key] == nil {
		code, err := New(compiler, support, l, o, passes)
		require.NoError(t, err)
		t.Cleanup(func() { code.Close() })
		c[key] = code
	}
	return c[key]
}

// placed puts the pages of a launch where code can reach them, until the test ends.
func placed(t testing.TB, l *launches.Launch) launches.Pages {
	all := make(smtest.Memory, len(l.Pages)*pageSize)
	all, out := pinned(t, all), make(launches.Pages)
	for addr, page := range l.Pages {
		b := all[:pageSize:pageSize]
		all = all[pageSize:]
		copy(b, page)
		out[addr] = b
		require.NoError(t, table.Map(addr, b, compile.PageReadable|compile.PageWritable))
	}
	return out
}

// drop takes pages from the table.
func drop(t testing.TB, p launches.Pages) {
	for addr := range p {
		table.Unmap(addr, pageSize)
	}
}

// What Mesa 25 makes of the programs of package shim runs as in interp, and nearly all of it as machine code.
func TestMesa(t *testing.T) {
	c := jittest.Compiler(t)
	sharedParts(t, c)
	files, err := filepath.Glob("testdata/*.launches")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".launches")
		t.Run(name, func(t *testing.T) {
			list, err := launches.Read(file)
			require.NoError(t, err)
			known, missing := make(codes), make(map[string]int)
			var compiled, interpreted uint64
			for n, l := range list {
				slow, fast := l.Copy(), placed(t, l)
				w := &twins{slow: interp.NewBlock(l.On(slow), [3]uint32{}), launch: l.On(fast), pages: table}
				w.code = known.of(t, c, w.launch, llvm.Quick)
				w.start(t)
				w.differs = func() string { return "" }
				require.Nil(t, w.run(t, fmt.Sprintf("launch %d", n), func() uint64 { return Slice }))
				for addr, b := range fast {
					require.True(t, bytes.Equal(slow[addr], b), "launch %d: page %#x", n, addr)
				}
				drop(t, fast)
				compiled, interpreted = compiled+w.runner.Compiled, interpreted+w.runner.Interpreted
				for form, n := range w.code.Program.Missing {
					missing[form] += n
				}
			}
			t.Logf("%d launches, %d programs, %d instructions compiled, %d not; %v", len(list), len(known), compiled, interpreted, missing)
		})
	}
}
