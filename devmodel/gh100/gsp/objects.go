package gsp

import (
	"cmp"
	"fmt"
	"slices"
)

// Statuses of a call, as the firmware has them.
const (
	ok               = 0x00
	invalidArgument  = 0x1f
	invalidClass     = 0x22
	invalidClient    = 0x23
	invalidHandle    = 0x33
	duplicateHandle  = 0x34
	invalidParent    = 0x36
	invalidStructure = 0x3a
	noMemory         = 0x51
	notSupported     = 0x56
	inUse            = 0x63
)

// Object is one that a driver allocated. A client has no parent, whatever it says.
type Object struct {
	Client  uint32  `json:"client"`
	Handle  uint32  `json:"handle"`
	Parent  uint32  `json:"parent"`
	Class   uint32  `json:"class"`
	Space   Space   `json:"space,omitzero"`   // what it is if it is an address space
	Channel Channel `json:"channel,omitzero"` // or a channel
}

// key names an object: handles are those of a client.
type key struct{ client, handle uint32 }

// node is an object in its tree.
type node struct {
	Object
	age      uint64 // smaller is older; a parent is older than its children
	parent   *node  // nil for a client
	children map[uint32]*node
}

// tree holds the objects of all clients, no more than most.
type tree struct {
	nodes map[key]*node
	most  int
	last  uint64
}

func newTree(most int) tree {
	return tree{nodes: make(map[key]*node), most: most + len(internalObjects)}
}

// find returns an object, nil if there is none.
func (t *tree) find(client, handle uint32) *node { return t.nodes[key{client, handle}] }

// add makes o a child of its parent, and returns a status.
func (t *tree) add(o Object) (*node, uint32) {
	parent := t.find(o.Client, o.Parent)
	switch {
	case t.find(o.Client, o.Handle) != nil:
		return nil, duplicateHandle
	case o.Handle == o.Client:
		parent = nil
	case t.find(o.Client, o.Client) == nil:
		return nil, invalidClient
	case parent == nil:
		return nil, invalidParent
	}
	if len(t.nodes) >= t.most {
		return nil, noMemory
	}
	t.last++
	n := &node{Object: o, age: t.last, parent: parent}
	if parent != nil {
		if parent.children == nil {
			parent.children = make(map[uint32]*node)
		}
		parent.children[o.Handle] = n
	}
	t.nodes[key{o.Client, o.Handle}] = n
	return n, ok
}

// remove removes n with all that is below it, the youngest first, so that children go before their
// parents. It tells gone of each.
func (t *tree) remove(n *node, gone func(*Object)) {
	list := []*node{n}
	for i := 0; i < len(list); i++ {
		for _, c := range list[i].children {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *node) int { return cmp.Compare(b.age, a.age) })
	for _, n := range list {
		delete(t.nodes, key{n.Client, n.Handle})
		if n.parent != nil {
			delete(n.parent.children, n.Handle)
		}
		gone(&n.Object)
	}
}

// all returns the objects, the oldest first.
func (t *tree) all() []*node {
	list := make([]*node, 0, len(t.nodes))
	for _, n := range t.nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *node) int { return cmp.Compare(a.age, b.age) })
	return list
}

// load adds the objects of a list, which has parents before their children.
func (t *tree) load(list []Object) error {
	for _, o := range list {
		if _, status := t.add(o); status != ok {
			return fmt.Errorf("object %#x of client %#x: status %#x", o.Handle, o.Client, status)
		}
	}
	return nil
}
