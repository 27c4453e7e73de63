package gsp

// control is a row of the table of controls. One without a handler has a constant answer.
type control struct {
	name   string
	on     uint32 // the class of the object that it is called on
	params int    // the size of the parameters that are read or written
	handle func(g *GSP, n *node, p []byte) uint32
	answer []fill
}

// fill sets the first elements of a member. All else is zero.
type fill struct {
	at    place
	count int
	v     uint64
}

func (g *GSP) tableOfControls() map[uint32]control {
	a := g.abi
	return map[uint32]control{
		0x00801306: {"FB_GET_COMPBIT_STORE_INFO", clDevice, a.compbitsSize, nil, nil},
		0x00801813: {"DMA_SET_PAGE_DIRECTORY", clDevice, a.directorySize, (*GSP).setDirectory, nil},
		0x00801814: {"DMA_UNSET_PAGE_DIRECTORY", clDevice, a.unsetSize, (*GSP).unsetDirectory, nil},
		// The card keeps its contexts elsewhere, and memory stays during a suspend.
		0x2080012b: {"GPU_PROMOTE_CTX", clSubdevice, a.promoteSize, nil, nil},
		0x20800137: {"GPU_GET_FERMI_GPC_INFO", clSubdevice, a.gpcsSize, nil, []fill{{a.gpcsMask, 1, 1<<len(g.cfg.TPCs) - 1}}},
		0x20800138: {"GPU_GET_FERMI_TPC_INFO", clSubdevice, a.tpcsSize, (*GSP).tpcs, nil},
		0x208001b0: {"GPU_GET_CONSTRUCTED_FALCON_INFO", clSubdevice, a.falconsSize, nil, nil},
		0x20800a1c: {"INTERNAL_MEMSYS_GET_STATIC_CONFIG", clSubdevice, a.memsysSize, nil, nil},
		0x20800a32: {"INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO", clSubdevice, a.contextsSize, (*GSP).contexts, nil},
		0x20800a5c: {"INTERNAL_INTR_GET_KERNEL_TABLE", clSubdevice, a.vectorsSize, (*GSP).vectors, nil},
		0x20800ac2: {"INTERNAL_FBSR_INIT", clSubdevice, a.saveSize, nil, nil},
		0x20800ac3: {"INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING", clSubdevice, a.stopSize, (*GSP).setChannelScheduling, nil},
		0x20801112: {"FIFO_GET_DEVICE_INFO_TABLE", clSubdevice, a.enginesSize, (*GSP).engines, nil},
		0x20801206: {"GR_GET_ZCULL_INFO", clSubdevice, a.zcullSize, (*GSP).culling, nil},
		0x20802a08: {"CE_GET_FAULT_METHOD_BUFFER_SIZE", clSubdevice, a.methodsSize, nil, []fill{{a.methodsBytes, 1, pageSize}}},
		0x90f10106: {"VASPACE_COPY_SERVER_RESERVED_PDES", clSpace, a.copySize, (*GSP).copyDirectory, nil},
		0xa06f0103: {"GPFIFO_SCHEDULE", clChannel, a.scheduleSize, (*GSP).schedule, nil},
		0xa06f0104: {"BIND", clChannel, a.bindSize, (*GSP).bind, nil},
	}
}

// callControl carries out a control on an object.
func (g *GSP) callControl(p []byte) uint32 {
	a := g.abi
	c, there := g.controls[a.controlNumber.get32(p)]
	if !there {
		g.noteUnsupported("control", a.controlNumber.get32(p))
		return notSupported
	}
	n, p := g.objects.find(a.controlClient.get32(p), a.controlObject.get32(p)), params(p, a.controlSize, a.controlParams)
	switch {
	case len(p) < c.params:
		return invalidStructure
	case n == nil || n.Class != c.on:
		return invalidHandle
	case c.handle != nil:
		return c.handle(g, n, p)
	}
	clear(p)
	for _, f := range c.answer {
		for i := range f.count {
			f.at.putItem(p, i, f.v)
		}
	}
	return ok
}

// Unsupported is a call, a control or a class that is in no table.
type Unsupported struct {
	Kind   string `json:"kind"` // control, function or class
	Number uint32 `json:"number"`
	Count  uint64 `json:"count"`
}

// maxUnsupported bounds how many of them are told apart.
const maxUnsupported = 64

// noteUnsupported counts what is in no table, and logs the first of its kind and number.
func (g *GSP) noteUnsupported(kind string, number uint32) {
	for i := range g.Unsupported {
		if u := &g.Unsupported[i]; u.Kind == kind && u.Number == number {
			u.Count++
			return
		}
	}
	if len(g.Unsupported) == maxUnsupported {
		g.UnsupportedOthers++
		return
	}
	g.Unsupported = append(g.Unsupported, Unsupported{kind, number, 1})
	g.cfg.Log("the driver asks for %s %#x, which release %s of the emulation does not have", kind, number, g.abi.release)
}
