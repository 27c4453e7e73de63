package e2e

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// classOf maps the guest's names of engines to classes.
var classOf = map[string]uint16{"m2mf": classM2MF, "ce0": classCE0, "ce1": classCE1, "copy": classCopy}

// copies runs a suite of copies. The card must have moved all verified bytes by the
// engines that the cases name.
func (b *fixture) copies(cmd string) {
	b.t.Helper()
	var r proto.CopyResult
	w := b.during(func() { b.call(cmd, proto.CopyArgs{Seed: 1}, &r) })
	require.Zero(b.t, r.Failed)
	require.NotEmpty(b.t, r.Cases)
	want := map[uint16]uint64{}
	for _, c := range r.Cases {
		require.True(b.t, c.OK, c.Name)
		name, _, _ := strings.Cut(c.Name, " ")
		require.Contains(b.t, classOf, name)
		want[classOf[name]] += c.Bytes
	}
	for class, bytes := range want {
		w.requireMoved(b.t, class, bytes)
	}
	// Staging uses M2MF only.
	for _, class := range []uint16{classCE0, classCE1} {
		if want[class] == 0 {
			require.Zero(b.t, w.bytes[class], "class %04x", class)
		}
	}
}

// exec copies by the interface of Mesa's Vulkan.
func (b *fixture) exec(k kernel) {
	b.t.Helper()
	var r proto.CopyResult
	w := b.during(func() { b.call(proto.CmdExec, proto.CopyArgs{Seed: 2}, &r) })
	w.requireMoved(b.t, k.stager(), r.Bytes)
}

func (b *fixture) fences(count int) {
	b.t.Helper()
	var r proto.FencesResult
	w := b.during(func() { b.call(proto.CmdFences, proto.FencesArgs{Count: count}, &r) })
	require.Equal(b.t, count, r.Waits)
	require.NotZero(b.t, r.CrossCopies)
	require.Zero(b.t, r.Wrong+r.CrossWrong)
	require.GreaterOrEqual(b.t, w.counts[doorbells], uint64(r.Pushes))
	require.GreaterOrEqual(b.t, w.counts[releases], uint64(r.Pushes), "each push ends with a fence")
}

// moves makes the kernel move a buffer between VRAM and GART. The guest fills the
// buffer by its engine and reads it by that whenever it is in VRAM. The kernel's own moves
// come on top.
func (b *fixture) moves(k kernel) {
	b.t.Helper()
	const size, moves = 1 << 20, 8
	const guests = (1 + moves/2) * size
	var r proto.BOMovesResult
	w := b.during(func() {
		b.call(proto.CmdBOMoves, proto.BOMovesArgs{Bytes: size, Moves: moves, Seed: 3}, &r)
	})
	require.Len(b.t, r.Domains, moves)
	require.EqualValues(b.t, moves*size, r.Bytes)
	b.requireKernelMoved(k, w, guests, moves*size)
}

// requireKernelMoved fails unless the guest program staged so many bytes, and the kernel moved so many by
// its own engine.
func (b *fixture) requireKernelMoved(k kernel, w work, guests, kernels uint64) {
	b.t.Helper()
	if k.Mover == k.stager() {
		w.requireMoved(b.t, k.Mover, guests+kernels)
		require.Zero(b.t, w.bytes[classCE0]+w.bytes[classCE1])
	} else {
		w.requireMoved(b.t, classM2MF, guests)
		w.requireMoved(b.t, k.Mover, kernels)
	}
}

// evict has processes keep more data than VRAM holds. They check it in turns, so the excess must leave
// VRAM and come back.
func (b *fixture) evict(k kernel) {
	b.t.Helper()
	const clients, kept = 6, 24 << 20
	var sum proto.LoadTotals
	w := b.during(func() {
		b.call(proto.CmdLoad, proto.LoadArgs{Clients: clients, Bytes: 64 << 10, KeepBytes: kept, ProgressMS: 50}, nil)
		b.progress(len(b.VM.Agent().Events()), 2*clients)
		b.call(proto.CmdLoadStop, nil, &sum)
	})
	b.requireKernelMoved(k, w, (clients+sum.Checks)*kept, clients*kept-lifeVRAM)
}
