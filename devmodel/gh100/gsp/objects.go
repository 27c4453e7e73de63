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
	// engines counts objects of engines, which have nothing that differs. Drivers give the same handles to
	// those of all their channels, and name no channel when they free one.
	engines map[key]int
	counted int // in engines
	most    int
	last    uint64
}

func newTree(most int) tree {
	return tree{nodes: make(map[key]*node), engines: make(map[key]int), most: most + len(internalObjects)}
}

// full reports whether there can be no more.
func (t *tree) full() bool { return len(t.nodes)+t.counted >= t.most }

// count adds n objects of an engine, or takes some away. It returns a status.
func (t *tree) count(client, handle uint32, n int) uint32 {
	k := key{client, handle}
	switch have := t.engines[k]; {
	case t.nodes[k] != nil:
		return duplicateHandle
	case have+n < 0:
		return invalidHandle
	case n > t.most-len(t.nodes)-t.counted:
		return noMemory
	case have+n == 0:
		delete(t.engines, k)
	default:
		t.engines[k] = have + n
	}
	t.counted += n
	return ok
}

// find returns an object, nil if there is none.
func (t *tree) find(client, handle uint32) *node { return t.nodes[key{client, handle}] }

// add makes o a child of its parent, and returns a status.
func (t *tree) add(o Object) (*node, uint32) {
	parent := t.find(o.Client, o.Parent)
	switch {
	case t.find(o.Client, o.Handle) != nil || t.engines[key{o.Client, o.Handle}] > 0:
		return nil, duplicateHandle
	case o.Handle == o.Client:
		parent = nil
	case t.find(o.Client, o.Client) == nil:
		return nil, invalidClient
	case parent == nil:
		return nil, invalidParent
	}
	if t.full() {
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
		} else {
			t.dropEngines(n.Client)
		}
		gone(&n.Object)
	}
}

// dropEngines removes a client's objects of engines.
func (t *tree) dropEngines(client uint32) {
	for k, n := range t.engines {
		if k.client == client {
			t.counted -= n
			delete(t.engines, k)
		}
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

// EngineObjects are so many objects of engines with one handle.
type EngineObjects struct {
	Client uint32 `json:"client"`
	Handle uint32 `json:"handle"`
	Count  int    `json:"count"`
}

// allEngines returns the objects of engines, in order.
func (t *tree) allEngines() (list []EngineObjects) {
	for k, n := range t.engines {
		list = append(list, EngineObjects{k.client, k.handle, n})
	}
	slices.SortFunc(list, func(a, b EngineObjects) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Handle, b.Handle))
	})
	return list
}

// load adds the objects of a list, which has parents before their children, and those of engines.
func (t *tree) load(list []Object, engines []EngineObjects) error {
	for _, o := range list {
		if _, status := t.add(o); status != ok {
			return fmt.Errorf("object %#x of client %#x: status %#x", o.Handle, o.Client, status)
		}
	}
	for _, e := range engines {
		if e.Count < 1 || t.find(e.Client, e.Client) == nil || t.count(e.Client, e.Handle, e.Count) != ok {
			return fmt.Errorf("%d objects %#x of engines of client %#x", e.Count, e.Handle, e.Client)
		}
	}
	return nil
}
