package gsp

// function is a row of the table of calls.
type function struct {
	name string
	size int // the least payload
	// A payload tells its size in total, or how many items of so many bytes follow the least.
	total, more place
	item        uint64
	// handle fills in the results, and returns a status. Without it there are none.
	handle func(g *GSP, p []byte) uint32
	status place        // where the reply has the status; without it, in the call's header
	silent bool         // has no reply
	after  func(g *GSP) // follows the reply of a call that succeeded
}

func (a *abi) functions() map[uint32]function {
	return map[uint32]function{
		4:   {name: "ALLOC_MEMORY", size: a.memorySize, more: a.memoryPages, item: 8, handle: (*GSP).allocMemory},
		10:  {name: "FREE", size: a.freeSize, handle: (*GSP).callFree, status: a.freeStatus},
		47:  {name: "UNLOADING_GUEST_DRIVER", size: a.unloadSize, handle: (*GSP).unload, after: (*GSP).unloaded},
		65:  {name: "GET_GSP_STATIC_INFO", size: a.staticSize, handle: (*GSP).staticInfo},
		70:  {name: "UPDATE_BAR_PDE", size: a.barSize, handle: (*GSP).setBAR},
		72:  {name: "GSP_SET_SYSTEM_INFO", silent: true},
		73:  {name: "SET_REGISTRY", size: a.registrySize, total: a.registryBytes, silent: true},
		76:  {name: "GSP_RM_CONTROL", size: a.controlSize, more: a.controlParams, item: 1, handle: (*GSP).callControl, status: a.controlStatus},
		103: {name: "GSP_RM_ALLOC", size: a.allocSize, more: a.allocParams, item: 1, handle: (*GSP).callAlloc, status: a.allocStatus},
	}
}

// length is how long the payload of a call is in all parts.
func (g *GSP) length(number uint32, p []byte) int {
	f, there := g.functions[number]
	if !there || len(p) < f.size {
		return len(p)
	}
	return int(max(uint64(len(p)), f.total.get(p), uint64(f.size)+f.item*f.more.get(p)))
}

// call carries out a call, and replies when the host is done with it.
func (g *GSP) call(c Call) {
	f, there := g.functions[c.Function]
	c.Result = ok
	switch {
	case !there:
		g.noteUnsupported("function", c.Function)
		c.Result = notSupported
	case len(c.Payload) < f.size:
		c.Result = invalidStructure
	case f.handle != nil:
		if c.Result = f.handle(g, c.Payload); f.status.size > 0 {
			f.status.put(c.Payload, uint64(c.Result))
			c.Result = ok
		}
	}
	if !f.silent {
		g.Held = &c
	}
}

// release sends the reply that is held. It returns false if the host is not done.
func (g *GSP) release() bool {
	c := g.Held
	if c == nil || g.calls == nil {
		return true
	}
	if !g.host.Settled() {
		return false
	}
	g.Held = nil
	g.calls.Send(*c)
	if f := g.functions[c.Function]; f.after != nil && c.Result == ok {
		f.after(g)
	}
	return true
}

// params returns the parameters that follow size bytes, nil if they are not all there.
func params(p []byte, size int, count place) []byte {
	if n, rest := count.get(p), p[size:]; n <= uint64(len(rest)) {
		return rest[:n:n]
	}
	return nil
}

func (g *GSP) callAlloc(p []byte) uint32 {
	a := g.abi
	o := Object{Client: a.allocClient.get32(p), Parent: a.allocParent.get32(p), Handle: a.allocObject.get32(p), Class: a.allocClass.get32(p)}
	return g.alloc(o, params(p, a.allocSize, a.allocParams))
}

// allocMemory makes a list of pages for a suspend. Memory survives that where it is, so nobody uses them.
func (g *GSP) allocMemory(p []byte) uint32 {
	a := g.abi
	o := Object{Client: a.memoryClient.get32(p), Parent: a.memoryParent.get32(p), Handle: a.memoryObject.get32(p), Class: a.memoryClass.get32(p)}
	if o.Class != clMemory {
		return invalidClass
	}
	return g.alloc(o, nil)
}

func (g *GSP) callFree(p []byte) uint32 {
	return g.free(g.abi.freeClient.get32(p), g.abi.freeObject.get32(p))
}

// windowBAR2 is the window whose root is GSP's.
const windowBAR2 = 1

func (g *GSP) setBAR(p []byte) uint32 {
	if g.abi.barWindow.get(p) != windowBAR2 {
		return invalidArgument
	}
	g.BAR2 = g.abi.barEntry.get(p)
	g.host.SetBAR2(g.BAR2)
	return ok
}

// levelSuspended is the level of power of a suspend.
const levelSuspended = 3

func (g *GSP) unload(p []byte) uint32 {
	if g.abi.unloadSuspend.get(p) != 0 && g.abi.unloadLevel.get(p) == levelSuspended {
		g.suspend()
	} else {
		g.drop()
	}
	return ok
}

func (g *GSP) unloaded() {
	if !g.Suspended {
		g.calls = nil
	}
	g.host.Unload()
}
