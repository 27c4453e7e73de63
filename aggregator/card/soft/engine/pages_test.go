package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPages: pages are found as they were added since the last drop, and take bounded memory.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			page  *page
			write bool
		}
		var p Pages
		p.begin()
		known := map[uint64]entry{}
		number := rapid.Custom(func(t *rapid.T) uint64 { // of two neighbours in each node
			bits := rapid.SliceOfN(rapid.Bool(), 4, 4).Draw(t, "bits")
			n := uint64(0)
			for i, at := range []int{0, nodeBits, 2 * nodeBits, vaBits - 12 - 1} {
				if bits[i] {
					n |= 1 << at
				}
			}
			return n
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n, write := number.Draw(t, "number"), rapid.Bool().Draw(t, "write")
				e := known[n]
				if e.page == nil {
					e.page = new(page)
				}
				e.write = e.write || write
				p.add(n, e.page, write)
				known[n] = e
			},
			"step": func(*rapid.T) { p.begin() },
			"drop": func(*rapid.T) { p.Drop(); clear(known) },
			"": func(t *rapid.T) {
				n := number.Draw(t, "found")
				e := known[n]
				require.True(t, p.find(n, false) == e.page)
				require.Equal(t, e.write, p.find(n, true) != nil)
			},
		})
	})
	var p Pages
	p.begin()
	for n := range uint64(2 * maxPageNodes) {
		p.add(n<<nodeBits, new(page), true)
	}
	require.Equal(t, maxPageNodes, p.nodes)
	require.NotNil(t, p.find(0, true))
	require.Nil(t, p.find((2*maxPageNodes-1)<<nodeBits, true), "there is no room")
	p.begin()
	require.Nil(t, p.find(0, true))
	p.add(1<<27, new(page), true)
	require.NotNil(t, p.find(1<<27, true), "there is room in the next step")
}
