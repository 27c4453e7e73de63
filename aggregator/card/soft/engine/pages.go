package engine

import "sync/atomic"

// Pages are the pages of an address space that its programs have reached, for processors to find
// without a lock. They belong to the address space, and whoever translates its addresses drops them
// before a call in which one of them may no longer be what Memory.Bytes returns.
//
// It is a tree by page number, in small nodes: most programs reach a few MiB in several places.
type Pages struct {
	root   *[1 << rootBits]atomic.Pointer[pageNode]
	nodes  int         // without the root
	filled []*pageLeaf // those that Drop clears
}

const (
	nodeBits = 9
	rootBits = vaBits - 12 - 2*nodeBits
	nodeMask = 1<<nodeBits - 1

	// maxPageNodes bounds the memory of Pages to some 2 MiB, the pages of up to 1 GiB.
	maxPageNodes = 512
)

type page = [pageSize]byte

type pageNode [1 << nodeBits]atomic.Pointer[pageLeaf]

type pageLeaf struct {
	pages    [1 << nodeBits]atomic.Pointer[page]
	writable [1 << nodeBits / 64]atomic.Uint64
	filled   bool // it is in Pages.filled
}

// Drop forgets all pages. No call that uses them is under way.
func (p *Pages) Drop() {
	for _, l := range p.filled {
		clear(l.pages[:])
		clear(l.writable[:])
		l.filled = false
	}
	p.filled = p.filled[:0]
}

// begin readies the pages for a step. If no more fit, it makes room.
func (p *Pages) begin() {
	if p.root == nil || p.nodes == maxPageNodes {
		*p = Pages{root: new([1 << rootBits]atomic.Pointer[pageNode])}
	}
}

// find returns a page, nil if it is not known, or not known to be writable. Any number of processors
// may call it during an add.
func (p *Pages) find(number uint64, write bool) *page {
	node := p.root[number>>(2*nodeBits)].Load()
	if node == nil {
		return nil
	}
	leaf := node[number>>nodeBits&nodeMask].Load()
	at := number & nodeMask
	if leaf == nil || write && leaf.writable[at/64].Load()>>(at%64)&1 == 0 {
		return nil
	}
	return leaf.pages[at].Load()
}

// add makes a page known until Drop, if there is room: one at a time.
func (p *Pages) add(number uint64, b *page, write bool) {
	node := child(p, &p.root[number>>(2*nodeBits)])
	if node == nil {
		return
	}
	leaf := child(p, &node[number>>nodeBits&nodeMask])
	if leaf == nil {
		return
	}
	if !leaf.filled {
		leaf.filled = true
		p.filled = append(p.filled, leaf)
	}
	at := number & nodeMask
	leaf.pages[at].Store(b)
	if write {
		leaf.writable[at/64].Or(1 << (at % 64))
	}
}

// child returns a node, and makes it if there is room; else nil.
func child[T any](p *Pages, at *atomic.Pointer[T]) *T {
	n := at.Load()
	if n == nil && p.nodes < maxPageNodes {
		p.nodes++
		n = new(T)
		at.Store(n)
	}
	return n
}
