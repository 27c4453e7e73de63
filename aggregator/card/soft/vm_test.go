package soft

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// The translations that a vm remembers are those that a walk finds, byte by
// byte, as soon as an invalidate has been given after the last change.
func TestVMAgainstWalks(t *testing.T) {
	v, err := newVRAM(MinVRAM)
	require.NoError(t, err)
	defer func() { require.NoError(t, v.close()) }()
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "ram")
	defer file.Close()
	require.NoError(t, file.Truncate(1<<20))
	ram, err := unix.Mmap(fd, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(ram)
	const dir, tables = 0x100000, 0x200000

	rapid.Check(t, func(t *rapid.T) {
		clear(v.mem[dir : tables+4*shadowpt.SmallEntries*8])
		c := &Card{vram: v}
		require.NoError(t, c.MapDMA(0, card.Mapping{Mem: ram, Write: true, File: file}))
		m := &vm{card: c}
		m.tlb.Bind(shadowpt.Fermi, shadowpt.Space{Dir: dir, Limit: rapid.SampledFrom([]uint64{0x9fffff, 0x80fffff, shadowpt.VASize - 1}).Draw(t, "limit")})
		// Two directory entries, four tables.
		page := rapid.Uint64Range(0, 80)
		for d := range uint64(2) {
			pde := shadowpt.PDE{
				Small: shadowpt.Table{Present: true, Addr: tables + d*2*shadowpt.SmallEntries*8},
				Big:   shadowpt.Table{Present: rapid.Bool().Draw(t, "big"), Addr: tables + (d*2+1)*shadowpt.SmallEntries*8},
			}
			write64(v.slice(dir+d*8, 8), pde.Encode())
		}
		// Two pages at adjacent addresses of different memories are not one run.
		const seam = 90
		for i, target := range []shadowpt.Target{shadowpt.VRAM, shadowpt.SystemCoherent} {
			pte := shadowpt.PTE{Valid: true, Target: target, Addr: 0xfe000 + uint64(i)*shadowpt.SmallPage}
			write64(v.slice(tables+(seam+uint64(i))*8, 8), pte.Encode())
		}
		draw := func() shadowpt.PTE {
			return shadowpt.PTE{
				Valid: rapid.IntRange(0, 3).Draw(t, "valid") != 0, ReadOnly: rapid.IntRange(0, 4).Draw(t, "ro") == 0,
				Supervisor: rapid.IntRange(0, 7).Draw(t, "supervisor") == 0,
				Target:     rapid.SampledFrom([]shadowpt.Target{0, 0, 0, 1, 2, 3}).Draw(t, "target"),
				// Neighbours now and then; now and then at the end of memory.
				Addr: rapid.SampledFrom([]uint64{0x800000, 0x801000, 0x802000, 0xff000, MinVRAM - 0x1000, MinVRAM, 0xfe000}).Draw(t, "addr"),
			}
		}
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for range rapid.IntRange(0, 30).Draw(t, "changes") {
				d, p := rapid.Uint64Range(0, 1).Draw(t, "dir"), page.Draw(t, "page")
				pte := draw()
				if rapid.IntRange(0, 5).Draw(t, "big page") == 0 {
					pte.Addr &^= shadowpt.BigPage - 1
					write64(v.slice(tables+(d*2+1)*shadowpt.SmallEntries*8+p/32*8, 8), pte.Encode())
				} else {
					write64(v.slice(tables+d*2*shadowpt.SmallEntries*8+p*8, 8), pte.Encode())
				}
				m.Bytes(p<<12, 4096, false) // remembered too early: stale until the invalidate
			}
			c.invalidate(rapid.SampledFrom([]directory{everyDirectory, {addr: dir}}).Draw(t, "directory"))
			for range rapid.SampledFrom([]int{0, 1, recentInvalidates - 2, recentInvalidates, 3 * recentInvalidates}).Draw(t, "others") {
				c.invalidate(directory{addr: dir + shadowpt.DirSize}) // of a neighbour
			}
			m.sync()
			checkBytes(t, c, m, seam<<12+rapid.Uint64Range(0, 4095).Draw(t, "before the seam"), 8192, false)
			for range 20 {
				va := rapid.Uint64Range(0, 1).Draw(t, "dir")*shadowpt.DirSpan + page.Draw(t, "page")<<12 + rapid.Uint64Range(0, 4095).Draw(t, "at")
				checkBytes(t, c, m, va, rapid.IntRange(1, 70000).Draw(t, "n"), rapid.Bool().Draw(t, "write"))
				checkPlace(t, c, m, va, rapid.Bool().Draw(t, "write to a place"))
			}
		}
	})
}

func write64(b []byte, v uint64) {
	for i := range 8 {
		b[i] = byte(v >> (8 * i))
	}
}

// walkByte finds the one byte at va.
func walkByte(c *Card, m *vm, va uint64, write bool) (*byte, engine.Fault) {
	fault := engine.Fault{VA: va, Write: write}
	p, reason, ok := shadowpt.Walk(m, m.tlb.Space(), va)
	switch {
	case !ok:
		fault.Reason = uint8(reason)
	case p.Supervisor:
		fault.Reason = uint8(shadowpt.PageSystemOnly)
	case write && p.ReadOnly:
		fault.Reason = uint8(shadowpt.PageReadOnly)
	default:
		if b := m.memory(p.Target, p.Addr+va-p.VA, 1, write); b != nil {
			return &b[0], fault
		}
		fault.Reason = uint8(shadowpt.PageNotPresent)
	}
	return nil, fault
}

func checkBytes(t *rapid.T, c *Card, m *vm, va uint64, n int, write bool) {
	b, fault := m.Bytes(va, n, write)
	want, wantFault := walkByte(c, m, va, write)
	if fault != nil {
		// A page that reaches over the end of its memory is refused whole.
		if want == nil {
			require.Equal(t, wantFault, *fault)
		} else {
			require.EqualValues(t, shadowpt.PageNotPresent, fault.Reason)
			p, _, _ := shadowpt.Walk(m, m.tlb.Space(), va)
			require.Nil(t, m.memory(p.Target, p.Addr, int(p.Size), write))
		}
		return
	}
	require.NotEmpty(t, b)
	require.LessOrEqual(t, len(b), n)
	for i := 0; i < len(b); i += 4096 - int((va+uint64(i))%4096) { // each page's first byte
		want, _ := walkByte(c, m, va+uint64(i), write)
		require.True(t, want == &b[i], "byte %#x of %#x", i, va)
	}
	last, _ := walkByte(c, m, va+uint64(len(b)-1), write)
	require.True(t, last == &b[len(b)-1])
}

// checkPlace checks that a place in a file has the bytes that a walk finds, with the right to write them.
func checkPlace(t *rapid.T, c *Card, m *vm, va uint64, write bool) {
	page := va &^ 4095
	at, ok := m.place(page, write)
	want, _ := walkByte(c, m, page, write)
	if !ok {
		p, _, _ := shadowpt.Walk(m, m.tlb.Space(), page)
		require.True(t, want == nil || m.memory(p.Target, p.Addr+page-p.VA, 4096, write) == nil, "%#x has no place", page)
		return
	}
	require.True(t, at.VA <= page && page < at.VA+at.Size && at.Size%4096 == 0, "%#x in %#x, %#x", page, at.VA, at.Size)
	require.True(t, at.Write || !write)
	mem := c.vram.mem
	if at.File != c.vram.file {
		m, _ := c.mappings.At(0, false)
		mem = m.Mem
	}
	for i := uint64(0); i < at.Size; i += 4096 {
		want, _ := walkByte(c, m, at.VA+i, at.Write)
		require.True(t, want == &mem[at.Off+i], "byte %#x of a place", at.VA+i)
	}
}
