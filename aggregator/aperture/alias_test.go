package aperture

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveMerge is merge byte by byte.
func naiveMerge(backing, alias, base []byte) {
	for i := range base {
		switch {
		case backing[i] != base[i]:
			alias[i] = backing[i]
		case alias[i] != base[i]:
			backing[i] = alias[i]
		}
		base[i] = backing[i]
	}
}

func TestMergeEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3*line + 12
		few := rapid.SliceOfN(rapid.ByteRange(0, 2), n, n)
		base := few.Draw(t, "base")
		side := func(name string) []byte { // all of it is another, or little, or nothing
			if rapid.IntRange(0, 3).Draw(t, name+" again") == 0 {
				return few.Draw(t, name)
			}
			b := clone(base)
			for range rapid.IntRange(0, 6).Draw(t, name+" stores") {
				b[rapid.IntRange(0, n-1).Draw(t, "at")] = rapid.SampledFrom([]byte{0, 1, 2, 0x10, 0x80, 0xff}).Draw(t, "byte")
			}
			return b
		}
		backing, alias := side("backing"), side("alias")
		h, p, a := clone(backing), clone(alias), clone(base)
		_, fast := merge(backing, alias, base)
		naiveMerge(h, p, a)
		require.False(t, fast)
		require.Equal(t, h, backing)
		require.Equal(t, p, alias)
		require.Equal(t, a, base)
		merged, _ := merge(backing, alias, base)
		require.Zero(t, merged)
	})
}

// shared is memory as windows are: others store into it without a lock.
func shared(t *testing.T) []byte {
	m, err := newMemory("test", pageSize)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.close()) })
	return m.mem
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

// TestMergeLosesNoStore has two sides store into words of their own, while they are
// held equal: each must find in the end what it stored last, on both sides.
func TestMergeLosesNoStore(t *testing.T) {
	const n, stores = 256, 20000
	backing, alias, base := shared(t)[:n], shared(t)[:n], make([]byte, n)
	var writers sync.WaitGroup
	store := func(mem []byte, first int) {
		for i := uint32(1); i <= stores; i++ {
			set(mem, first+int(i)%(n/8)*8, i)
		}
	}
	writers.Go(func() { store(backing, 0) })
	writers.Go(func() { store(alias, 4) })
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	lost := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if _, fast := merge(backing, alias, base); fast {
			lost++
		}
	}
	merge(backing, alias, base)
	require.Equal(t, backing, alias)
	for i := uint32(stores - n/8 + 1); i <= stores; i++ {
		at := int(i) % (n / 8) * 8
		require.Equal(t, i, binary.LittleEndian.Uint32(backing[at:]), "backing's own")
		require.Equal(t, i, binary.LittleEndian.Uint32(backing[at+4:]), "alias's own")
	}
	require.Zero(t, lost)
}
