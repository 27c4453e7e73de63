package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// A program without an end stops soon when it is told to, and when its budget is spent.
func TestStop(t *testing.T) {
	c := jittest.Compiler(t)
	text := "mov b32 $r0 $tidx\nagain:\nadd b32 $r0 $r0 0x1\nbra again"
	w := newTwins(t, c, llvm.Quick, assemble(t, text), [3]uint32{64, 1, 1}, nil)
	w.work.Count = 1
	spent, why := w.runner.Run(&w.work, 100_000)
	require.Equal(t, compile.Budget, why)
	require.GreaterOrEqual(t, spent, uint64(100_000))
	require.Less(t, spent, uint64(100_000+Slice))
	time.AfterFunc(20*time.Millisecond, func() { atomic.StoreUint32(&w.work.Stop, 1) })
	_, why = w.runner.Run(&w.work, forever())
	require.Equal(t, compile.Stopped, why)
	require.EqualValues(t, 1, w.runner.image.Begun)
}

// Lanes take turns by locks of shared memory, and drop them when they end.
func TestLocks(t *testing.T) {
	c := jittest.Compiler(t)
	const counts = `
again:
	ld lock b32 $p0 $r10 s[0x40]
	$p0 add b32 $r10 $r10 $r2
	$p0 st unlock b32 s[0x40] $r10
	(not $p0) bra again
`
	const mov = "mov b32 $r2 $tidx\n"
	const result = "bar popc 0x1 0x0 0x0 0x0 0x1\nld b32 $r0 s[0x40]" + smtest.Store
	for _, p := range []struct {
		text string
		want uint32
	}{
		{mov + counts + result, 63 * 64 / 2},
		// Lane 5 ends with its lock, which is then free again. Its number is not counted.
		{mov + "set $p1 0x1 eq u32 $r2 0x5\n$p1 ld lock b32 $p2 $r11 s[0x40]\n$p1 exit\n" + counts + result, 63*64/2 - 5},
		// Each lane has a lock of its own word, and drops only that.
		{mov + `
	shl b32 $r3 $r2 clamp 0x2
	ld lock b32 $p0 $r10 s[$r3+0x80]
	and b32 $r4 $r2 0x1
	set $p1 0x1 eq u32 $r4 0x0
	$p1 st unlock b32 s[$r3+0x80] $r2
	ld lock b32 $p0 $r10 s[$r3+0x80]
	selp b32 $r0 $r10 0x7777 $p0` + smtest.Store, 0x7777},
		// Who does not hold a lock does not drop it.
		{mov + `
	ld lock b32 $p0 $r10 s[0x80]
	set $p1 0x1 ne u32 $r2 0x0
	$p1 st unlock b32 s[0x80] $r2
	ld lock b32 $p0 $r10 s[0x80]
	selp b32 $r0 $r10 0x7777 $p0` + smtest.Store, 0x7777},
	} {
		w := newTwins(t, c, llvm.Quick, assemble(t, p.text), [3]uint32{64, 1, 1}, nil)
		require.Nil(t, w.run(t, p.text, func() uint64 { return 50 }))
		require.Equal(t, p.want, w.fastMem.Word(63))
		require.Greater(t, w.runner.Compiled, 4*w.runner.Interpreted)
	}
}

// Code takes a size from the constants to be small only as long as it is.
func TestLargerConstants(t *testing.T) {
	c := jittest.Compiler(t)
	text := `
	mov b32 $r2 $tidx
	ld b64 $r60d c0[0x0]
	mul $r3 u32 $r2 u32 c0[0x8]
	shr u32 $r4 $r3 clamp 0x1e
	shl b32 $r3 $r3 clamp 0x2
	and b32 $r3 $r3 0x3fc
	add b32 $r0 $r3 $r4` + smtest.Store
	for _, size := range []uint32{3, 0x40000000, 0xfffffff0} {
		w := newTwins(t, c, llvm.Quick, assemble(t, text), [3]uint32{64, 1, 1}, func(m smtest.Memory) { m[smtest.Consts-smtest.Base+8] = 3 })
		for _, m := range []smtest.Memory{w.memory, w.fastMem} {
			require.NoError(t, m.Store(smtest.Consts+8, []byte{byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24)}))
		}
		require.Equal(t, size == 3, fermi.Fits(w.code.Program, w.launch))
		require.Nil(t, w.run(t, text, forever))
		require.Equal(t, size == 3, w.runner.Compiled > 0)
	}
}

// protected is memory whose page of data cannot be written.
type protected struct{ smtest.Memory }

var errProtected = errors.New("read only")

func (p protected) Store(addr uint64, from []byte) error {
	if addr >= smtest.Data && addr < smtest.Local {
		return errProtected
	}
	return p.Memory.Store(addr, from)
}

func (p protected) Update(uint64, int, func(uint64) uint64) (uint64, error) { return 0, errProtected }

// A page that can only be read keeps what it has, whatever way an access takes.
func TestReadOnlyPages(t *testing.T) {
	c := jittest.Compiler(t)
	const start = "mov b32 $r2 $tidx\nld b64 $r60d c0[0x0]\nadd b32 $r60 $c (shl $r2 0x2) $r60\nadd b32 $r61 $r61 0x0 $c\nld b32 $r0 ca g[$r60d]\n"
	const scattered = "xor b32 $r3 $r2 0x5\nld b64 $r60d c0[0x0]\nadd b32 $r60 $c (shl $r3 0x3) $r60\nadd b32 $r61 $r61 0x0 $c\n"
	for _, text := range []string{
		start + "st b32 wb g[$r60d] $r2\nexit\n", start + scattered + "st b32 wb g[$r60d] $r2\nexit\n",
		start + "red add u32 g[$r60d] $r2\nexit\n", start + "set $p0 0x1 gt u32 $r2 0x3\n$p0 st b32 wb g[$r60d] $r2\nexit\n",
	} {
		for _, size := range [][3]uint32{{64, 1, 1}, {16, 4, 1}} {
			w := newTwins(t, c, llvm.Quick, assemble(t, text), size, nil)
			require.NoError(t, table.Map(smtest.Data, w.fastMem[smtest.Data-smtest.Base:][:pageSize], compile.PageReadable))
			w.slow.Launch.Memory = protected{w.memory}
			fault := w.run(t, text, forever)
			require.NotNil(t, fault, text)
			require.Equal(t, interp.BadAddress, fault.Cause, text)
			require.Positive(t, w.runner.Compiled)
			require.NoError(t, table.Map(smtest.Data, w.fastMem[smtest.Data-smtest.Base:][:pageSize], compile.PageReadable|compile.PageWritable))
		}
	}
}

// A row that leaves the end of memory is wrong, and one that reaches it is not.
func TestEdge(t *testing.T) {
	c := jittest.Compiler(t)
	spaces := []struct {
		address  string // of the row's end before the rows: %[1]d is the logarithm of a lane's bytes
		end      int
		accesses []string
	}{
		{"mov b32 $r2 $tidx\nshl b32 $r6 $r2 clamp %[1]d\nadd b32 $r6 $r6 %#[2]x\n", 4096,
			[]string{"st b32 s[$r6] $r2", "ld b32 $r4 s[$r6]", "st b64 s[$r6] $r4d", "ld b64 $r4d s[$r6]"}},
		{"mov b32 $r2 $tidx\nmov b32 $r8 %#[2]x\nmov b32 $r9 0x1\nadd b32 $r6 $c (shl $r2 %[1]d) $r8\nadd b32 $r7 $r9 0x0 $c\n", smtest.Size,
			[]string{"st b32 wb g[$r6d] $r2", "ld b32 $r4 ca g[$r6d]", "st b64 wb g[$r6d] $r4d", "ld b64 $r4d ca g[$r6d]"}},
	}
	for _, space := range spaces {
		for _, access := range space.accesses {
			log := 2
			if strings.Contains(access, "b64") {
				log = 3
			}
			for _, size := range [][3]uint32{{32, 1, 1}, {16, 2, 1}, {24, 1, 1}} {
				for _, beyond := range []int{0, 16, 64} {
					text := fmt.Sprintf(space.address, log, space.end-int(size[0])<<log+beyond) + access + "\nexit\n"
					w := newTwins(t, c, llvm.Quick, assemble(t, text), size, nil)
					require.Equal(t, beyond > 0, w.run(t, text, forever) != nil, text)
					require.Positive(t, w.runner.Compiled)
				}
			}
		}
	}
}

// Several threads run blocks of one grid: each block once.
func TestThreads(t *testing.T) {
	c := jittest.Compiler(t)
	text := "mov b32 $r2 $ctaidx\nld b64 $r60d c0[0x0]\nadd b32 $r60 $c (shl $r2 0x2) $r60\nadd b32 $r61 $r61 0x0 $c\nred add u32 g[$r60d] $r2\nexit\n"
	w := newTwins(t, c, llvm.Quick, assemble(t, text), [3]uint32{32, 1, 1}, nil)
	l := *w.launch
	l.Grid[0] = 512
	w.code.Close()
	o := fermi.Options(&l)
	var err error
	w.code, err = New(c, support, &l, o, llvm.Quick)
	require.NoError(t, err)
	work := state.Work{Count: 512}
	var threads sync.WaitGroup
	for range 4 {
		r, err := w.code.NewRunner(&l, table, newImage(t, &l))
		require.NoError(t, err)
		threads.Go(func() {
			for {
				if _, why := r.Run(&work, 1000); why == compile.Exhausted {
					return
				}
			}
		})
	}
	threads.Wait()
	for i := range 512 {
		require.EqualValues(t, 32*i, w.fastMem.Word(i))
	}
}
