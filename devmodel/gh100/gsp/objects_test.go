package gsp

import (
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/tests/scale"
)

// twin is a naive tree of objects: a list, the oldest first.
type twin []Object

func (w twin) find(client, handle uint32) int {
	return slices.IndexFunc(w, func(o Object) bool { return o.Client == client && o.Handle == handle })
}

func (w twin) status(o Object, most int) uint32 {
	switch {
	case w.find(o.Client, o.Handle) >= 0:
		return duplicateHandle
	case o.Client != o.Handle && w.find(o.Client, o.Client) < 0:
		return invalidClient
	case o.Client != o.Handle && w.find(o.Client, o.Parent) < 0:
		return invalidParent
	case len(w) >= most:
		return noMemory
	}
	return ok
}

// remove removes an object and whose parents are gone.
func (w *twin) remove(client, handle uint32) {
	*w = slices.Delete(*w, w.find(client, handle), w.find(client, handle)+1)
	for _, o := range slices.Clone(*w) {
		if o.Client == client && o.Parent == handle && o.Handle != client {
			w.remove(client, o.Handle)
		}
	}
}

// TestTree: the tree of objects is as its naive twin. What is removed goes after all that is below it.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 12
		w, tr := twin{}, newTree(most-len(internalObjects))
		number := rapid.Uint32Range(1, 8)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			o := Object{Client: number.Draw(t, "client") % 3, Handle: number.Draw(t, "handle"), Parent: number.Draw(t, "parent")}
			n := tr.find(o.Client, o.Handle)
			require.Equal(t, n != nil, w.find(o.Client, o.Handle) >= 0)
			if n != nil && rapid.Bool().Draw(t, "remove") {
				tr.remove(n, func(o *Object) {
					for _, left := range tr.nodes {
						require.False(t, left.parent != nil && left.Client == o.Client && left.Parent == o.Handle)
					}
				})
				w.remove(o.Client, o.Handle)
			} else {
				_, status := tr.add(o)
				require.Equal(t, w.status(o, most), status)
				if status == ok {
					w = append(w, o)
				}
			}
			list := twin{}
			for _, n := range tr.all() {
				list = append(list, n.Object)
			}
			require.Equal(t, w, list)
			again := newTree(most - len(internalObjects))
			require.NoError(t, again.load(list))
		}
	})
}

// TestAllocations: a guest that allocates for ever has the objects of its budget, and the server no more
// memory with each.
func TestAllocations(t *testing.T) {
	u := newGuest(t)
	u.boot()
	u.client(c1, true)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var before uint64
	for i := range uint32(scale.Of(5_000, 1_000_000)) {
		client, parent, class := uint32(c1), uint32(dev), uint32(0x90f1)
		if i%3 == 0 { // a client of its own
			client, parent, class = 1+i, 1+i, 0
		}
		status := u.alloc(client, parent, 1+i, class, make([]byte, 120))
		if i == 1000 {
			before = heap()
		}
		require.Equal(t, i >= testBudget-4, status == noMemory, "allocation %d: %#x", i, status)
	}
	require.Less(t, heap(), before+1<<20)
	require.Len(t, u.g.objects.nodes, testBudget+len(internalObjects))
}
