package gsp

// Numbers of classes.
const (
	clRoot      = 0x0000
	clDevice    = 0x0080
	clMemory    = 0x0081 // a list of pages of system memory
	clSubdevice = 0x2080
	clSpace     = 0x90f1
	clChannel   = 0xc86f
)

// class is a row of the table of classes.
type class struct {
	name   string
	parent uint32 // the class of the parent; a client has none
	params int    // the size of the parameters that are read
	// open completes an object from its parameters, and returns a status. close ends it. Objects below a
	// channel are not kept: they have nothing that differs, and drivers give several of them one handle.
	open  func(g *GSP, parent *node, o *Object, p []byte) uint32
	close func(g *GSP, o *Object)
}

func (a *abi) classes() map[uint32]class {
	return map[uint32]class{
		clRoot:      {name: "client"},
		clDevice:    {name: "device", parent: clRoot},
		clSubdevice: {name: "subdevice", parent: clDevice},
		clMemory:    {name: "memory list", parent: clDevice},
		clSpace:     {name: "address space", parent: clDevice, params: a.spaceSize, open: (*GSP).openSpace, close: (*GSP).closeSpace},
		clChannel:   {name: "channel", parent: clDevice, params: a.channelSize, open: (*GSP).openChannel, close: (*GSP).closeChannel},
		0x902d:      {name: "2D", parent: clChannel, open: (*GSP).openGraphics},
		0xa140:      {name: "inline to memory", parent: clChannel, open: (*GSP).openGraphics},
		0xcb97:      {name: "3D", parent: clChannel, open: (*GSP).openGraphics},
		0xcbc0:      {name: "compute", parent: clChannel, open: (*GSP).openGraphics},
		0xc8b5:      {name: "copy", parent: clChannel},
	}
}

// alloc makes an object with the parameters p, and returns a status.
func (g *GSP) alloc(o Object, p []byte) uint32 {
	c, there := g.classes[o.Class]
	parent := g.objects.find(o.Client, o.Parent)
	switch {
	case !there:
		g.noteUnsupported("class", o.Class)
		return invalidClass
	case len(p) < c.params:
		return invalidStructure
	case (o.Class == clRoot) != (o.Handle == o.Client):
		return invalidHandle
	case o.Class != clRoot && parent != nil && parent.Class != c.parent, c.parent == clChannel && parent == nil:
		return invalidParent
	case c.parent == clChannel && c.open == nil:
		return ok
	case c.parent == clChannel:
		return c.open(g, parent, &o, p)
	}
	n, status := g.objects.add(o)
	if status == ok && c.open != nil {
		if status = c.open(g, n.parent, &n.Object, p); status != ok {
			g.objects.remove(n, func(*Object) {})
		}
	}
	return status
}

// free frees an object with all that is below it. A handle of a client that nothing has may be that of an
// object below a channel.
func (g *GSP) free(client, handle uint32) uint32 {
	n := g.objects.find(client, handle)
	switch {
	case n == nil && g.objects.find(client, client) == nil:
		return invalidHandle
	case n == nil:
		return ok
	case n.Class == clSpace && g.used(n.Space.ID):
		return inUse
	}
	g.objects.remove(n, g.closed)
	return ok
}

func (g *GSP) closed(o *Object) {
	if c := g.classes[o.Class]; c.close != nil {
		c.close(g, o)
	}
}
