package sched

// Tree has the nodes. It knows where they are, and nothing of their work.
type Tree struct {
	Nodes  []Node
	Unused []int32 // places of freed nodes
}

const (
	none = int32(-1) // no node
	root = int32(0)  // the card's node
)

// ID names a node for as long as the node exists. Zero names nothing.
type ID uint64

// Card is the node of the card.
const Card ID = 1 << 32

// Kind is the kind of a node.
type Kind uint8

// The kinds.
const (
	Free    Kind = iota // its place is free
	Inner               // the card, a guest or a group
	Channel             // takes submissions
)

// Block is a set of reasons why a node gets no turn.
type Block uint8

// The reasons.
const (
	Stopped     Block = 1 << iota // by the watchdog, until its request has ended
	Quarantined                   // by the watchdog, until it is released
	Dying                         // removed, with work on the card
)

func (t *Tree) id(n int32) ID { return ID(t.Nodes[n].Gen)<<32 | ID(uint32(n)) }

// find returns the node of an id, none if it was removed.
func (t *Tree) find(id ID) int32 {
	n := uint32(id)
	if int64(n) >= int64(len(t.Nodes)) || t.Nodes[n].Kind == Free || t.Nodes[n].Gen != uint32(id>>32) {
		return none
	}
	return int32(n)
}

// insert puts a node below a parent, as its last child. Its lanes are as those of the node before it at its
// place.
func (t *Tree) insert(parent int32, k Kind, c NodeConfig, engines int) int32 {
	n := int32(len(t.Nodes))
	if last := len(t.Unused) - 1; last >= 0 {
		n, t.Unused = t.Unused[last], t.Unused[:last]
	} else {
		t.Nodes = append(t.Nodes, Node{Lanes: make([]Lane, engines)})
	}
	node := &t.Nodes[n]
	batches := node.Chan.Batches[:0]
	if k == Channel && cap(batches) == 0 {
		batches = make([]Batch, 0, maxBatches)
	}
	*node = Node{
		Gen: node.Gen + 1, Kind: k, Config: c, Parent: parent, First: none, Next: none, Lanes: node.Lanes,
		Chan: ChannelState{Batches: batches},
	}
	if parent != none {
		*t.link(parent, none) = n
	}
	return n
}

// cut frees a node without children.
func (t *Tree) cut(n int32) {
	node := &t.Nodes[n]
	*t.link(node.Parent, n) = node.Next
	node.Kind = Free
	t.Unused = append(t.Unused, n)
}

// link is what points to a child of p, or to the end of its children.
func (t *Tree) link(p, child int32) *int32 {
	at := &t.Nodes[p].First
	for *at != child {
		at = &t.Nodes[*at].Next
	}
	return at
}

// guestOf returns the guest at or above a node, none for the card.
func (t *Tree) guestOf(n int32) int32 {
	if n == root {
		return none
	}
	for t.Nodes[n].Parent != root {
		n = t.Nodes[n].Parent
	}
	return n
}

func (t *Tree) weight(n int32) int64 { return int64(t.Nodes[n].Config.Weight) }

// isGroup reports whether a node has channels.
func (t *Tree) isGroup(n int32) bool {
	c := t.Nodes[n].First
	return c != none && t.Nodes[c].Kind == Channel
}

func (t *Tree) depth(n int32) (d int) {
	for ; n != root; n = t.Nodes[n].Parent {
		d++
	}
	return d
}

// walk visits a node and all below it, from the top.
func (t *Tree) walk(n int32, depth int, visit func(n int32, depth int)) {
	visit(n, depth)
	for c := t.Nodes[n].First; c != none; c = t.Nodes[c].Next {
		t.walk(c, depth+1, visit)
	}
}

func (t *Tree) onCard(n int32) bool {
	for e := range t.Nodes[n].Lanes {
		if t.Nodes[n].Lanes[e].Inflight > 0 {
			return true
		}
	}
	return false
}
